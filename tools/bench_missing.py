"""Measure what missing measurements cost: PSNR against their share.

Beside the estimate that `reconstruct` makes (`reconstruction.gaussian`) stands the plain way, the
mean gray in their place.

Example: python tools/bench_missing.py -m paper-r25
"""

import argparse
from pathlib import Path

import numpy as np

import tersense
from tersense.evaluation.metrics import psnr
from tersense.io.images import PHOTOGRAPH, read_gray
from tersense.measurements.measurements import MeasuredValues

SHARES = (0.02, 0.05, 0.1, 0.25, 0.5)
KINDS = ("rows", "measurements", "windows")


def lose(kind: str, share: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return which measurements (m, h, w) are missing: whole rows of Φ, any, or whole windows."""
    rng = np.random.default_rng(2017)
    sizes = {"rows": (shape[0], 1, 1), "measurements": shape, "windows": (1, *shape[1:])}
    size = sizes[kind]
    lost = np.zeros(np.prod(size), bool)
    lost[rng.permutation(lost.size)[: round(share * lost.size)]] = True
    return np.broadcast_to(lost.reshape(size), shape)


def main() -> None:
    """Print a Markdown table for one image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="paper-r25")
    parser.add_argument("--image", type=Path, default=PHOTOGRAPH)
    options = parser.parse_args()
    imager, image = tersense.load(options.model), read_gray(options.image)
    y = imager.sense(image)
    gray = imager.mean * imager.operator.sense_ones(image.shape).numpy()
    print(f"{imager.name}, {options.image.name}: {psnr(imager.reconstruct(y), image):.2f} dB\n")
    print("| missing | " + " | ".join(f"{kind}, estimated | mean gray" for kind in KINDS) + " |")
    print("|---" * (1 + 2 * len(KINDS)) + "|")
    for share in SHARES:
        cells = []
        for kind in KINDS:
            lost = lose(kind, share, y.values.shape)
            for fallback in (np.nan, gray):
                values = np.where(lost, fallback, y.values)
                again = imager.reconstruct(MeasuredValues(values, y.header))
                cells.append(f"{psnr(again, image):.2f}")
        print(f"| {share:.0%} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
