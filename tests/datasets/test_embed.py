import subprocess
import sys

import numpy as np
import pytest

from fedgem.datasets import embed, load_dataset

N_TRAIN, N_TEST = 40, 20


@pytest.fixture
def torch():
    pytest.importorskip("torchvision")
    return pytest.importorskip("torch")


def write_images(folder, prefix="", classes=10):
    """Write random images in the format of MNIST, as torchvision downloads them."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    halves = (("train", N_TRAIN), ("test" if prefix else "t10k", N_TEST))
    labels = []
    for half, n in halves:
        pixels = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
        labels.append(rng.permutation(np.arange(n) % classes).astype(np.uint8))
        header = b"".join(int(number).to_bytes(4, "big") for number in (0x803, n, 28, 28))
        (folder / f"{prefix}{half}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = b"".join(int(number).to_bytes(4, "big") for number in (0x801, n))
        (folder / f"{prefix}{half}-labels-idx1-ubyte").write_bytes(header + labels[-1].tobytes())
    return np.concatenate(labels)


@pytest.mark.parametrize(
    ("name", "kind", "prefix", "classes", "n_features"),
    [
        ("mnist", "MNIST", "", 10, 10),
        ("fashion-mnist", "FashionMNIST", "", 10, 64),
        ("emnist", "EMNIST", "emnist-balanced-", 47, 16),
    ],
)
def test_the_file_is_one_that_load_dataset_reads(
    torch, tmp_path, capsys, name, kind, prefix, classes, n_features
):
    labels = write_images(tmp_path / "images" / kind / "raw", prefix, classes)
    embed.main([name, "--data-dir", str(tmp_path), "--epochs", "1"])
    assert f"{N_TRAIN + N_TEST} rows of {n_features} numbers" in capsys.readouterr().out
    dataset = load_dataset(name, tmp_path)
    assert dataset.X.shape == (N_TRAIN + N_TEST, n_features)
    np.testing.assert_array_equal(dataset.y, labels)
    with pytest.raises(SystemExit, match="is there already"):
        embed.main([name, "--data-dir", str(tmp_path)])


def test_embeddings_of_two_kinds_of_images_are_apart(torch):
    generator = torch.Generator().manual_seed(0)
    images = 0.2 * torch.rand(100, 1, 28, 28, generator=generator)
    images[50:, :, :14] += 0.8
    X = embed.embed_images("mnist", images, epochs=10)
    kinds = X[:50].mean(0), X[50:].mean(0)
    spread = np.linalg.norm(X[:50] - kinds[0], axis=1).mean()
    assert np.linalg.norm(kinds[0] - kinds[1]) > 3 * spread
    np.testing.assert_array_equal(X, embed.embed_images("mnist", images, epochs=10))
    assert not np.array_equal(X, embed.embed_images("mnist", images, epochs=10, seed=1))


def test_images_with_colours_go_through_a_resnet_and_a_vae(torch):
    images = torch.rand(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    X = embed.embed_images("cifar-10", images, epochs=1)
    assert X.shape == (24, 64)
    assert np.isfinite(X).all()


def test_without_pytorch_one_sentence_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['torch'] = None; from fedgem.datasets import embed;"
        f"embed.main(['mnist', '--data-dir', {str(tmp_path)!r}])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("Error: Making embeddings needs PyTorch (")
    assert run.stderr.endswith("pip install 'fedgem[embed]'.\n")
    assert not list(tmp_path.iterdir())
