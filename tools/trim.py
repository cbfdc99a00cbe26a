"""Cut the margin of a lapped camera's windows and keep 5 % of the weights: a smaller model file.

    python tools/trim.py MODEL.safetensors 62 PHOTOGRAPHS -o SMALLER.safetensors

Weights in the margin go; of the others those go whose loss, says the gradient over some crops of
the photographs, is felt least. `lapped-r04` and `lapped-r50` were cut from 64×64 to 62×62 pixels.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import tersense
from tersense.io.images import find_images, read_gray
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

SIDE, CROPS, BATCH = 160, 80, 8


def random_crops(folder: Path) -> NDArray[np.uint8]:
    """Return (CROPS, SIDE, SIDE) from as many photographs."""
    rng, crops = np.random.default_rng(0), []
    for path in rng.permutation(np.array(find_images(folder))):
        image = read_gray(path)
        if min(image.shape) >= SIDE and len(crops) < CROPS:
            top, left = (rng.integers(side - SIDE + 1) for side in image.shape)
            crops.append(image[top : top + SIDE, left : left + SIDE])
    return np.stack(crops)


def slope_of_loss(imager: Imager, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return how the mean absolute error changes with every weight of Φ, (m, B, B)."""
    phi = torch.from_numpy(imager.phi.copy()).float().requires_grad_()
    slope = torch.zeros_like(phi)
    for pixels in np.array_split(crops, len(crops) // BATCH):
        x = (torch.from_numpy(pixels).float() - imager.mean) / imager.std
        operator = SensingOperator(phi, imager.patterns.stride, imager.operator.alpha)
        estimate = imager.reconstructor(operator.forward(x), operator, (SIDE, SIDE))
        slope += torch.autograd.grad((estimate - x).abs().mean(), phi)[0]
    return slope.numpy()


def trim(phi: NDArray[np.int8], slope: NDArray[np.float32], window: int) -> NDArray[np.int8]:
    """Return (m, window, window) with the weights that are felt most, as many in every pattern."""
    margin = (phi.shape[-1] - window) // 2
    inside = slice(margin, margin + window)
    phi, slope = (a[:, inside, inside].reshape(len(phi), -1) for a in (phi, slope))
    # To drop a weight is felt by −φ·slope. Where too few are left, the best new ones come in.
    felt = np.where(phi != 0, 1e6 - phi * slope, np.abs(slope))
    kept = np.argsort(-felt, axis=1)[:, : int(0.05 * window**2)]
    signs = np.where(phi != 0, phi, -np.sign(slope))
    trimmed = np.zeros_like(phi)
    np.put_along_axis(trimmed, kept, np.take_along_axis(signs, kept, 1).astype(np.int8), 1)
    return trimmed.reshape(-1, window, window)


def main() -> None:
    """Trim a model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("window", type=int)
    parser.add_argument("photographs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    imager = tersense.load(args.model)
    phi = trim(imager.phi, slope_of_loss(imager, random_crops(args.photographs)), args.window)
    about = {**imager.about, "trimmed": f"from {imager.patterns.window} to {args.window} pixels"}
    smaller = Imager(
        args.out.stem, Patterns(phi, imager.patterns.stride), imager.operator.alpha, imager.mean,
        imager.std, imager.reconstructor, about,
    )  # fmt: skip
    write_model(args.out, smaller)


if __name__ == "__main__":
    main()
