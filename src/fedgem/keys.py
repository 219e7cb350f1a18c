"""Keys and certificates for a federation: a test authority, a server's certificate, clients' keys.

A server shows its certificate, signed by the authority that clients are given, and clients sign
what they send with keys whose public halves the server is given. Needs the extra
``fedgem[flower]``.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedgem.errors import InputError

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
SERVER, SERVER_KEY = "server.pem", "server.key"
CLIENTS = "clients"  # the folder of the clients' keys
VALID = timedelta(days=365)
# A server can always be reached from its own machine.
HERE = ("localhost", "127.0.0.1", "::1")


def new_server_keys(folder: Path, host: str) -> list[Path]:
    """Make a server's certificate for a host, and an authority to sign it if there is none.

    Parameters
    ----------
    folder : path
        Where to; an authority that is already there is used.
    host : str
        The name or the address that clients will use.

    Returns
    -------
    list of paths
        The files that were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if not (folder / AUTHORITY_KEY).exists():
        key = generate_private_key(SECP384R1())
        certificate = _certificate("fedgem test authority", key, key, None, None)
        _write(folder / AUTHORITY_KEY, _pem(key), private=True)
        _write(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))
        written += [folder / AUTHORITY, folder / AUTHORITY_KEY]
    authority_key = load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
    assert isinstance(authority_key, EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    key = generate_private_key(SECP384R1())
    certificate = _certificate(host, key, authority_key, authority, [host, *HERE])
    _write(folder / SERVER_KEY, _pem(key), private=True)
    _write(folder / SERVER, certificate.public_bytes(Encoding.PEM))
    return [*written, folder / SERVER, folder / SERVER_KEY]


def new_client_keys(folder: Path, names: Iterable[str]) -> list[Path]:
    """Make a pair of keys for each client.

    Parameters
    ----------
    folder : path
        Where to; they go to a folder ``clients`` in it.
    names : iterable of str
        The clients.

    Returns
    -------
    list of paths
        The files that were written.
    """
    folder = folder / CLIENTS
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        if not name or name != Path(name).name:
            raise InputError(f"Found a client called {name!r}, expected the name of a file.")
        key = generate_private_key(SECP384R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        # A name may have dots in it: with_suffix would take them for an ending.
        _write(folder / f"{name}.key", private, private=True)
        _write(folder / f"{name}.pub", public + f" {name}\n".encode())
        written += [folder / f"{name}.key", folder / f"{name}.pub"]
    return written


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    hosts: Iterable[str] | None,
) -> x509.Certificate:
    """Return a certificate: a server's for its hosts, or an authority's, which signs itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    is_authority, now = authority is None, datetime.now(UTC)
    signer_id = x509.SubjectKeyIdentifier.from_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_authority,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer_id), False
        )
    )
    if hosts is not None:
        names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(names, False).add_extension(usage, False)
    return builder.sign(signer, SHA384())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a new file, one that nobody else can read if it is private."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    except FileExistsError:
        raise InputError(f"{path}: found a file of that name, expected none.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
