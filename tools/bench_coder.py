"""Measure the bits of the sensor's coder: per measurement, exact and with codes in whole steps.

Beside it stand plain packed codes, as wide as the widest that came, the entropy of the values (as
if their distribution over all images were known), and the same coder without terms: first each
value by itself, then the difference from the window before.

Example: python tools/bench_coder.py -m flex --rate 0.1 --rate 0.25
"""

import argparse
from pathlib import Path

import numpy as np
from skimage import color, data

import tersense
from tersense.export.coder import choose_terms
from tersense.io.images import find_images, read_gray
from tersense.measurements.rice import RiceCoder

STEPS = (1, 32, 96)
PHOTOGRAPHS = ("camera", "astronaut", "coffee", "chelsea", "rocket", "coins")


def photographs() -> list[np.ndarray]:
    """Return photographs of scikit-image in gray."""
    images = [getattr(data, name)() for name in PHOTOGRAPHS]
    return [image if image.ndim == 2 else np.rint(255 * color.rgb2gray(image)).astype(np.uint8)
            for image in images]  # fmt: skip


def entropy(values: np.ndarray) -> float:
    """Return the bits per value that the best code of a known distribution takes."""
    share = np.unique(values, return_counts=True)[1] / values.size
    return float(-(share * np.log2(share)).sum())


def differences(values: np.ndarray) -> np.ndarray:
    """Return values (m, h, w) less those of the window before."""
    flat = values.reshape(len(values), -1)
    return np.diff(flat, axis=1, prepend=0).reshape(values.shape)


def main() -> None:
    """Print a Markdown table, bits per measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="flex")
    parser.add_argument("--rate", type=float, action="append")
    parser.add_argument("--images", type=Path, help="a folder; default: those of scikit-image")
    options = parser.parse_args()
    images = [read_gray(path) for path in find_images(options.images)] if options.images else None
    print("| rate | step | packed | entropy | no terms | window before | coder | bits per pixel |")
    print("|---" * 8 + "|")
    for rate in options.rate or (0.1, 0.25):
        imager = tersense.load(options.model).at_rate(rate)
        sums = [imager.sense(image).values.astype(np.int64) for image in images or photographs()]
        terms = choose_terms(imager.phi)
        for step in STEPS:
            codes = [(2 * y + step) // (2 * step) for y in sums]
            every = np.concatenate(codes, axis=None)
            bits = int(np.abs(every).max()).bit_length() + 1
            coder, alone = RiceCoder(bits, terms), RiceCoder(bits + 1, ((),) * len(terms))
            ways = (alone, codes), (alone, [differences(y) for y in codes]), (coder, codes)
            found = [8 * sum(len(c.encode(y)) for y in ys) / every.size for c, ys in ways]
            pixels = found[-1] * imager.patterns.rate
            cells = [f"{n:.2f}" for n in (entropy(every), *found, pixels)]
            print(f"| {rate:.0%} | {step} | {bits} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
