"""Draw textures to train with: ridges, stripes, weaves, lattices, at random.

    python tools/textures.py FOLDER --number 250 --seed 1

Photographs seldom have a texture all over, so networks and predictors learn little of it; cloth,
hair, fingerprints and grids are made of nothing else. Each image has its own waves, bent by a
smooth field, its own edges from soft to hard, its own light, and in some a smooth region without
texture.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter

Plane = NDArray[np.float64]
SIDE = 512
SHORTEST, LONGEST = 5.0, 28.0  # wavelengths, in pixels


def main() -> None:
    """Write the textures as PNG files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.number):
        rng = np.random.default_rng((options.seed, number))
        kind = KINDS[number % len(KINDS)]
        path = options.folder / f"{kind.__name__}-{options.seed}-{number:04d}.png"
        Image.fromarray(draw(rng, kind)).save(path)


def draw(
    rng: np.random.Generator, kind: Callable[[np.random.Generator], Plane]
) -> NDArray[np.uint8]:
    """Return one texture, lit and finished, as an 8-bit image."""
    waves = kind(rng)
    hard = np.exp(rng.uniform(np.log(0.5), np.log(8)))
    waves = np.tanh(hard * (waves - rng.uniform(-0.3, 0.3))) / np.tanh(hard)
    contrast = rng.uniform(15, 110) * (1 + 0.4 * smooth(rng, 80))
    if rng.random() < 0.4:
        contrast = contrast / (1 + np.exp(-8 * smooth(rng, 70)))  # nothing there in some places
    image = rng.uniform(70, 180) + 30 * smooth(rng, 120) + contrast * waves
    image += rng.uniform(0, 5) * rng.standard_normal(image.shape)
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def smooth(rng: np.random.Generator, width: float) -> Plane:
    """Return a smooth random field of mean 0 and deviation 1."""
    shrink = max(1, int(width / 8))
    side = -(-SIDE // shrink) + 1
    small = gaussian_filter(rng.standard_normal((side, side)), width / shrink, mode="reflect")
    zoomed = Image.fromarray(small.astype(np.float32)).resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC
    )
    field = np.asarray(zoomed, np.float64)
    return (field - field.mean()) / field.std()


def grating(rng: np.random.Generator, angle: float, wavelength: float, bend: float) -> Plane:
    """Return cosine waves across an angle, bent by so many wavelengths."""
    down, across = np.mgrid[:SIDE, :SIDE]
    phase = (across * np.cos(angle) + down * np.sin(angle)) / wavelength
    return np.cos(2 * np.pi * (phase + bend * smooth(rng, rng.uniform(30, 90)) + rng.random()))


def _wavelength(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST))))


def ridges(rng: np.random.Generator) -> Plane:
    """Return bands of one width in all directions, as on a fingertip."""
    wavelength = _wavelength(rng)
    noise = rng.standard_normal((SIDE, SIDE))
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
    band = np.exp(-(((frequency * wavelength - 1) / rng.uniform(0.06, 0.2)) ** 2))
    if rng.random() < 0.5:  # mostly along one direction
        angle = np.arctan2(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None] + 1e-9)
        band *= np.exp(rng.uniform(0, 6) * np.cos(2 * (angle - rng.uniform(0, np.pi))))
    waves = np.fft.irfft2(np.fft.rfft2(noise) * band, s=(SIDE, SIDE))
    return waves / np.abs(waves).mean()


def stripes(rng: np.random.Generator) -> Plane:
    """Return bent stripes."""
    return grating(rng, rng.uniform(0, np.pi), _wavelength(rng), rng.uniform(0, 3))


def weave(rng: np.random.Generator) -> Plane:
    """Return threads that cross, one above the other by turns."""
    angle, wavelength, bend = rng.uniform(0, np.pi), _wavelength(rng), rng.uniform(0, 1)
    skew = np.pi / 2 + rng.normal(0, 0.15)
    warp = grating(rng, angle, wavelength, bend)
    weft = grating(rng, angle + skew, wavelength * rng.uniform(0.7, 1.4), bend)
    return warp * weft if rng.random() < 0.5 else np.maximum(warp, weft)


def lattice(rng: np.random.Generator) -> Plane:
    """Return dots on a lattice, or the mesh between them."""
    angle, wavelength = rng.uniform(0, np.pi), _wavelength(rng)
    parts = 3 if rng.random() < 0.5 else 2
    waves = sum(
        grating(rng, angle + np.pi * turn / parts, wavelength, rng.uniform(0, 0.5))
        for turn in range(parts)
    )
    return rng.choice([-1, 1]) * waves / parts * 1.6


KINDS = (ridges, stripes, weave, lattice)

if __name__ == "__main__":
    main()
