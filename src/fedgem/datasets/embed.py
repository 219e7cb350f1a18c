"""Embeddings of images: ``python -m fedgem.datasets.embed NAME --data-dir DIR``.

The paper clusters the means that a variational autoencoder (VAE) gives to images. It says how many
dimensions they have, and this follows it; it does not say which layers the networks have, so those
here are plain choices. A VAE for MNIST is here too, though `load_dataset` downloads the very
embeddings that the paper used.

Images of characters and clothes go through a convolutional VAE. Those of CIFAR-10 first go through
a ResNet-18 that learns without labels, by Barlow Twins (Zbontar et al., 2021), then through a VAE
of dense layers. A GPU is used where there is one; 225 passes of a ResNet-18 take long without.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgem.datasets.sources import SOURCES, Contents, checksum
from fedgem.errors import InputError
from fedgem.typing import Array
from fedgem.writing import appearing

__all__ = ["embed_images", "main"]

LATENT = {"mnist": 10, "fashion-mnist": 64, "emnist": 16, "cifar-10": 64}  # the paper's
EPOCHS = 30
BARLOW_EPOCHS = 225
BATCH, RATE = 128, 1e-3
BARLOW_BATCH = 512
OFF_DIAGONAL = 5e-3  # how much Barlow Twins minds that two features tell the same
FEATURES = 512  # of a ResNet-18


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the file of embeddings of one data set."""
    parser = argparse.ArgumentParser("python -m fedgem.datasets.embed", description=__doc__)
    parser.add_argument("name", choices=LATENT)
    parser.add_argument("--data-dir", type=Path, required=True, help="where the file goes")
    parser.add_argument(
        "--epochs",
        type=int,
        help=f"passes over the images in each training (default: {EPOCHS}, Barlow Twins "
        f"{BARLOW_EPOCHS})",
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    path = asked.data_dir / SOURCES[asked.name].file
    try:
        if path.exists():
            raise InputError(f"{path}: is there already; move it away to make another.")
        with appearing(path, force=False) as new:
            images, labels = _images(asked.name, asked.data_dir / "images")
            x = embed_images(asked.name, images, epochs=asked.epochs, seed=asked.seed)
            sha256 = checksum(Contents(x, labels, ()))
            with new.open("wb") as file:
                np.savez_compressed(file, x=x, y=labels.astype(np.uint8), sha256=sha256)
    except InputError as error:
        sys.exit(f"Error: {error}")
    print(f"{path}: {x.shape[0]} rows of {x.shape[1]} numbers")


def embed_images(name: str, images: Any, *, epochs: int | None = None, seed: int = 0) -> Array:
    """Train the networks of a data set on its images and return the images' embeddings.

    Parameters
    ----------
    name : str
        The data set.
    images : torch.Tensor of shape (N, channels, height, width)
        Its images, from 0 to 1.
    epochs : int, optional
        Passes over the images in each training; 30 by default, and 225 for Barlow Twins.
    seed : int, default=0
        The same seed gives the same embeddings, on a CPU.

    Returns
    -------
    ndarray of float32 of shape (N, d)
        The means of the posterior of each image.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> embed_images("mnist", torch.rand(100, 1, 28, 28), epochs=1).shape  # doctest: +SKIP
    (100, 10)
    """
    torch = _torch()
    if epochs is not None and epochs < 1:
        raise InputError(f"epochs: found {epochs}, expected at least 1.")
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cifar-10":
        inputs = _standardised(_barlow_features(images.to(device), epochs or BARLOW_EPOCHS))
        encoder, decoder = _dense_networks(LATENT[name])
        loss = torch.nn.MSELoss(reduction="sum")
    else:
        inputs = images.to(device)
        encoder, decoder = _convolutional_networks(LATENT[name])
        loss = torch.nn.BCEWithLogitsLoss(reduction="sum")
    return _vae_means(inputs, encoder.to(device), decoder.to(device), loss, epochs or EPOCHS)


def _torch() -> Any:
    try:
        import torch
        import torchvision  # noqa: F401 - both are needed, and come together
    except ImportError as error:
        raise InputError(
            f"Making embeddings needs PyTorch ({error}): pip install 'fedgem[embed]'."
        ) from error
    return torch


def _images(name: str, folder: Path) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return the images to train on and to test on, from 0 to 1, and their labels."""
    torch = _torch()
    from torchvision import datasets

    kinds = {
        "mnist": datasets.MNIST,
        "fashion-mnist": datasets.FashionMNIST,
        "emnist": datasets.EMNIST,
        "cifar-10": datasets.CIFAR10,
    }
    options = {"split": "balanced"} if name == "emnist" else {}
    try:
        halves = [
            kinds[name](folder, train=train, download=True, **options) for train in (True, False)
        ]
    except (OSError, RuntimeError) as error:
        raise InputError(f"{name}: cannot download the images to {folder}: {error}") from error
    pixels = np.concatenate([np.asarray(half.data) for half in halves])
    labels = np.concatenate([np.asarray(half.targets) for half in halves])
    colours = pixels.ndim == 4  # the last axis, where there are any
    images = torch.tensor(np.moveaxis(pixels, -1, 1) if colours else pixels[:, None])
    return images.float() / 255, labels


def _convolutional_networks(n_latent: int) -> tuple[Any, Any]:
    """Return an encoder of images of 28 x 28 pixels to means and log-variances, and a decoder."""
    from torch import nn

    half = {"kernel_size": 3, "stride": 2, "padding": 1}
    encoder = nn.Sequential(
        *(nn.Conv2d(1, 32, **half), nn.ReLU()),
        *(nn.Conv2d(32, 64, **half), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU()),
        nn.Linear(256, 2 * n_latent),
    )
    decoder = nn.Sequential(
        *(nn.Linear(n_latent, 64 * 7 * 7), nn.ReLU(), nn.Unflatten(1, (64, 7, 7))),
        *(nn.ConvTranspose2d(64, 32, **half, output_padding=1), nn.ReLU()),
        nn.ConvTranspose2d(32, 1, **half, output_padding=1),
    )
    return encoder, decoder


def _dense_networks(n_latent: int) -> tuple[Any, Any]:
    """Return an encoder of a ResNet's features to means and log-variances, and a decoder."""
    from torch import nn

    encoder = nn.Sequential(
        *(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()),
        nn.Linear(128, 2 * n_latent),
    )
    decoder = nn.Sequential(
        *(nn.Linear(n_latent, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU()),
        nn.Linear(256, FEATURES),
    )
    return encoder, decoder


def _vae_means(inputs: Any, encoder: Any, decoder: Any, loss: Any, epochs: int) -> Array:
    """Train a VAE, whose bound is the reconstruction's loss and the divergence from N(0, I)."""
    torch = _torch()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), device=inputs.device).split(BATCH):
            mean, log_variance = encoder(inputs[rows]).chunk(2, dim=1)
            drawn = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
            divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum() / 2
            objective = (loss(decoder(drawn), inputs[rows]) + divergence) / len(rows)
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    means: Array = _applied(lambda part: encoder(part).chunk(2, dim=1)[0], inputs).cpu().numpy()
    return means


def _barlow_features(images: Any, epochs: int) -> Any:
    """Train a ResNet-18 to tell the same of two views of an image, and return its features."""
    torch = _torch()
    from torch import nn
    from torchvision.models import resnet18

    network = resnet18()
    # Images of 32 x 32 pixels are too small for the large steps of the first layers.
    network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    network.maxpool, network.fc = nn.Identity(), nn.Identity()
    projector = nn.Sequential(
        *(nn.Linear(FEATURES, 2048, bias=False), nn.BatchNorm1d(2048), nn.ReLU()),
        nn.Linear(2048, 2048, bias=False),
    )
    both = nn.Sequential(network, projector).to(images.device)
    optimizer = torch.optim.AdamW(both.parameters(), lr=RATE, weight_decay=1e-6)
    for _ in range(epochs):
        for rows in torch.randperm(len(images), device=images.device).split(BARLOW_BATCH):
            first, second = (_standardised(both(_view(images[rows]))) for _ in range(2))
            correlations = first.T @ second / len(rows)
            own = torch.diagonal(correlations)
            others = (correlations**2).sum() - (own**2).sum()
            objective = ((own - 1) ** 2).sum() + OFF_DIAGONAL * others
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    return _applied(network.eval(), images)


def _standardised(values: Any) -> Any:
    return (values - values.mean(0)) / (values.std(0) + 1e-6)


def _view(images: Any) -> Any:
    """Crop, mirror, brighten and tint each image at random."""
    torch = _torch()
    n = len(images)

    def uniform(low: float, high: float, *shape: int) -> Any:
        return low + (high - low) * torch.rand(n, *shape, device=images.device)

    side = uniform(0.2, 1).sqrt()  # of the crop, whose area is from a fifth of the image to all
    mirrored = torch.where(uniform(0, 1) < 0.5, -side, side)
    frames = torch.zeros(n, 2, 3, device=images.device)
    frames[:, 0, 0], frames[:, 1, 1] = mirrored, side
    frames[:, :, 2] = uniform(-1, 1, 2) * (1 - side)[:, None]
    grid = torch.nn.functional.affine_grid(frames, list(images.shape), align_corners=False)
    crops = torch.nn.functional.grid_sample(images, grid, align_corners=False)
    grey = crops.mean(1, keepdim=True).expand_as(crops)
    crops = torch.where(uniform(0, 1, 1, 1, 1) < 0.2, grey, crops * uniform(0.8, 1.2, 3, 1, 1))
    level = crops.mean((1, 2, 3), keepdim=True)
    contrast, brightness = uniform(0.6, 1.4, 1, 1, 1), uniform(0.6, 1.4, 1, 1, 1)
    return ((crops - level) * contrast + level * brightness).clamp(0, 1)


def _applied(network: Any, inputs: Any) -> Any:
    """Apply a trained network, part by part."""
    torch = _torch()
    with torch.inference_mode():
        return torch.cat([network(part) for part in inputs.split(1000)]).clone()


if __name__ == "__main__":
    main()
