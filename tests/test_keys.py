import ssl
import stat
from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedgem import InputError
from fedgem.keys import new_client_keys, new_server_keys


def test_nobody_else_can_read_what_is_private(tmp_path):
    written = new_server_keys(tmp_path, "fed.example.com") + new_client_keys(tmp_path, ["a", "b.c"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in written}
    assert {name: mode for name, mode in modes.items() if name.endswith(".key")} == dict.fromkeys(
        ["authority.key", "server.key", "a.key", "b.c.key"], 0o600
    )
    assert len(modes) == 8


def test_a_server_can_be_reached_by_its_name_and_from_its_own_machine(tmp_path):
    new_server_keys(tmp_path, "fed.example.com")
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.com", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    context = ssl.create_default_context(cafile=tmp_path / "authority.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    ends = [ssl.MemoryBIO() for _ in range(4)]
    one = context.wrap_bio(ends[0], ends[1], server_hostname="fed.example.com")
    two = server.wrap_bio(ends[2], ends[3], server_side=True)
    for _ in range(3):
        for side in (one, two):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
            ends[2].write(ends[1].read())
            ends[0].write(ends[3].read())
    assert one.getpeercert()["subject"] == ((("commonName", "fed.example.com"),),)


def test_the_halves_of_a_client_belong_together(tmp_path):
    new_client_keys(tmp_path, ["a"])
    private = load_ssh_private_key((tmp_path / "clients" / "a.key").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "clients" / "a.pub").read_bytes())
    assert private.public_key() == public


def test_one_authority_signs_for_several_servers(tmp_path):
    new_server_keys(tmp_path, "one")
    before = (tmp_path / "authority.pem").read_bytes()
    (tmp_path / "server.key").unlink()
    (tmp_path / "server.pem").unlink()
    assert [p.name for p in new_server_keys(tmp_path, "two")] == ["server.pem", "server.key"]
    assert (tmp_path / "authority.pem").read_bytes() == before


def test_no_key_is_replaced_and_no_path_taken_for_a_name(tmp_path):
    new_client_keys(tmp_path, ["a"])
    with pytest.raises(InputError, match="found a file of that name"):
        new_client_keys(tmp_path, ["a"])
    with pytest.raises(InputError, match="expected the name of a file"):
        new_client_keys(tmp_path, ["../a"])
