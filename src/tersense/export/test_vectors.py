"""Test vectors: windows and the measurements that every implementation must give for them.

Real windows are those of the photograph that comes with the package, at its border too. The worst
cases drive the accumulators to their ends: a window that is white where a pattern has +1 and black
elsewhere gives the largest measurement that this pattern can give, and the other way round.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tersense.export.arithmetic import Pixels, deepen
from tersense.io.images import PHOTOGRAPH, ImageArray, read_gray
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

REAL_WINDOWS = 12


@dataclass(frozen=True, eq=False)
class Vectors:
    """Windows and their measurements.

    Args:
        names: What each window is: `real …`, `all 0`, `all 255`, `row … highest`, `row … lowest`.
        pixels: (N, B, B), uint8, or uint16 where pixels have more than 8 bits.
        measurements: (N, m) int32, exact.
    """

    names: tuple[str, ...]
    pixels: Pixels
    measurements: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.names)

    def short(self) -> "Vectors":
        """Return those for a slow simulation: of the rows only those that reach furthest."""
        limits = self.measurements.argmax(axis=0), self.measurements.argmin(axis=0)
        highest = self.measurements.max(axis=0).argmax()
        lowest = self.measurements.min(axis=0).argmin()
        extremes = {self.names[limits[0][highest]], self.names[limits[1][lowest]]}
        keep = [k for k, name in enumerate(self.names)
                if not name.startswith("row") or name in extremes]  # fmt: skip
        names = tuple(self.names[k] for k in keep)
        return Vectors(names, self.pixels[keep], self.measurements[keep])

    def save(self, folder: Path) -> None:
        """Write `pixels.npy`, `measurements.npy` and `names.txt` into a new folder."""
        folder.mkdir()
        np.save(folder / "pixels.npy", self.pixels)
        np.save(folder / "measurements.npy", self.measurements)
        (folder / "names.txt").write_text("\n".join(self.names) + "\n", encoding="utf-8")


def make_vectors(patterns: Patterns, depth: int = 8) -> Vectors:
    """Cut real windows and build the worst cases, with the measurements of all."""
    shallow, places = _real_windows(Geometry(patterns.window, patterns.stride))
    real, white = deepen(shallow, depth), 2**depth - 1
    side, kind = patterns.window, real.dtype
    flat = np.stack([np.full((side, side), value, kind) for value in (0, white)])
    highest = np.where(patterns.phi > 0, white, 0).astype(kind)
    lowest = np.where(patterns.phi < 0, white, 0).astype(kind)
    names = (
        *(f"real {i},{j}" for i, j in places),
        *("all 0", f"all {white}"),
        *(f"row {row} highest" for row in range(len(patterns))),
        *(f"row {row} lowest" for row in range(len(patterns))),
    )
    pixels = np.concatenate([real, flat, highest, lowest])
    return Vectors(names, pixels, measure(patterns, pixels))


def measure(patterns: Patterns, windows: Pixels) -> NDArray[np.int32]:
    """Return Φ times windows (…, B, B), (…, m), as an integer product and nothing else."""
    phi = patterns.phi.reshape(len(patterns), -1).astype(np.int32)
    return windows.reshape(*windows.shape[:-2], -1).astype(np.int32) @ phi.T


def photograph(height: int, width: int) -> ImageArray:
    """Return a part of the bundled photograph in gray, around its middle; repeated if larger."""
    whole = read_gray(PHOTOGRAPH)
    repeats = -(-height // whole.shape[0]), -(-width // whole.shape[1])
    whole = np.tile(whole, repeats)
    top, left = (whole.shape[0] - height) // 2, (whole.shape[1] - width) // 2
    return np.ascontiguousarray(whole[top : top + height, left : left + width])


def cut_windows(geometry: Geometry, image: Pixels) -> Pixels:
    """Return all windows (h, w, B, B) of an image (H, W), zeros where it has no pixels."""
    left, right, top, bottom = geometry.padding(*image.shape)
    extended = np.pad(image, ((top, max(0, bottom)), (left, max(0, right))))
    every: Pixels = sliding_window_view(extended, (geometry.window, geometry.window))
    h, w = geometry.grid(*image.shape)
    return every[:: geometry.stride, :: geometry.stride][:h, :w]


def make_test_images(patterns: Patterns, vectors: Vectors, depth: int = 8) -> Pixels:
    """Return images (N, H, W): a photograph, the worst cases in it, all white and all black.

    They are a little larger than one window, and no multiple of the stride.
    """
    geometry = Geometry(patterns.window, patterns.stride)
    B, S = geometry.window, geometry.stride
    begin = -geometry.offset % S  # of the first window that is whole
    background = deepen(photograph(begin + B + S - 1, begin + B + S // 2), depth)
    short = vectors.short()
    images: list[NDArray[Any]] = [background]
    for name, window in zip(short.names, short.pixels, strict=True):
        if name.startswith("row"):
            image = background.copy()
            image[begin : begin + B, begin : begin + B] = window
            images.append(image)
    for value in (2**depth - 1, 0):
        image = background.copy()
        image[:] = value
        images.append(image)
    return np.stack(images)


def _real_windows(geometry: Geometry) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """Cut windows (N, B, B) evenly from the photograph, its first and last among them."""
    windows = cut_windows(geometry, read_gray(PHOTOGRAPH))
    h, w = windows.shape[:2]
    chosen = np.unique(np.linspace(0, h * w - 1, REAL_WINDOWS).astype(int))
    places = [(int(k) // w, int(k) % w) for k in chosen]
    return np.stack([windows[place] for place in places]), places
