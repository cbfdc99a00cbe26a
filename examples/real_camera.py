"""From the values that a real single-pixel camera measured to images: docs/real-camera.md.

FILE.mat holds Haar coefficients: W (N×N, Mallat's square, zeros where the finest scale was not
measured), J (levels) and F (N×N, another camera's picture of the same target, not registered).
Without a file, a photograph stands in, so that the result can be compared with the truth.

.venv/bin/pip install -c constraints.txt -e '.[baselines]'
python examples/real_camera.py [FILE.mat] [-o FOLDER] [-m runs/haar]
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
from scipy import ndimage, optimize

import tersense
from tersense import Imager, Patterns, read_measured
from tersense.evaluation.metrics import psnr
from tersense.export.base import export
from tersense.io.figures import draw_sheet
from tersense.io.images import PHOTOGRAPH, read_gray, to_pixels, write_image
from tersense.io.matlab import list_matrices
from tersense.measurements import Header, MeasuredValues
from tersense.sensing import haar_patterns, haar_windows
from tersense.sensing.bases import haar_kinds

BRIGHTEST = 200.0  # gray levels of the brightest window
NOISE = 10.6  # of the stand-in's coefficients, in gray levels: that of the measured file


def stand_in(side: int) -> dict[str, np.ndarray]:
    """Return what the file would hold for a photograph, with h and v negated as in the real one."""
    truth = read_gray(PHOTOGRAPH)[60 : 60 + side, 120 : 120 + side]
    square, n = truth.astype(float), side
    for _ in range(4):
        part = square[:n, :n]
        for axis in (0, 1):
            first, second = (np.take(part, range(k, n, 2), axis) for k in (0, 1))
            part = np.concatenate([first + second, second - first], axis) / np.sqrt(2)
        square[:n, :n], n = part, n // 2
    square[: side // 2, : side // 2] += np.random.default_rng(0).normal(
        0, NOISE, (side // 2, side // 2)
    )
    square[side // 2 :], square[:, side // 2 :] = 0, 0
    return {"W": square, "J": np.array([[4]]), "F": truth}


def invert(y: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Return the inverse transform (H, W) of y (m, h, w): patterns are orthogonal."""
    weights = y / np.count_nonzero(phi, axis=(1, 2))[:, None, None]
    blocks = np.einsum("mhw,mij->hiwj", weights, phi)
    return blocks.reshape(y.shape[1] * phi.shape[1], -1)


def variation(image: np.ndarray) -> float:
    """Return the mean absolute difference of neighbors."""
    return float(np.mean([np.abs(np.diff(image, axis=axis)).mean() for axis in (0, 1)]))


def correlate(image: np.ndarray, reference: np.ndarray) -> float:
    """Return the correlation of two images."""
    return float(np.corrcoef(image.ravel(), reference.ravel())[0, 1])


def register(picture: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Turn, scale and move a picture so that it correlates best with another one."""
    middle = (np.array(onto.shape) - 1) / 2

    def moved(place: np.ndarray) -> np.ndarray:
        angle, scale, *shift = place
        c, s = scale * np.cos(angle), scale * np.sin(angle)
        matrix = np.array([[c, -s], [s, c]])
        offset = middle + shift - matrix @ middle
        return ndimage.affine_transform(picture, matrix, offset, order=1, mode="nearest")

    start = np.array([0.0, 1.0, 0.0, 0.0])
    simplex = start + np.vstack([np.zeros(4), np.diag([0.03, 0.03, 3.0, 3.0])])
    found = optimize.minimize(
        lambda place: -correlate(moved(place), onto),
        start,
        method="Nelder-Mead",
        options={"initial_simplex": simplex},
    )
    angle, scale, down, right = found.x
    print(f"registered: turned by {np.degrees(angle):.2f}°, scaled by {scale:.4f}, "
          f"moved by {down:.2f} pixels down and {right:.2f} right")  # fmt: skip
    return moved(found.x)


def prepare(found: dict[str, np.ndarray], folder: Path, unit: float | None) -> Imager:
    """Write patterns, table and manifest; from then on it is a camera like any other."""
    # Patterns: a transform of J levels is a block camera of 2^J × 2^J pixels.
    square, side, window = found["W"].astype(float), len(found["W"]), 2 ** int(found["J"].item())
    measured = np.count_nonzero(square.any(axis=1))  # the square without the finest scale
    phi = haar_patterns(window, measured * window // side)
    kinds, nonzeros = np.array(list(haar_kinds(measured * window // side))), (phi != 0).sum((1, 2))
    camera = Imager.untrained(Patterns(phi, window), name="haar")
    export("matrix", camera, folder)
    np.save(folder / "haar.npy", phi)

    # Values: one line for each window, one column for each pattern.
    table = haar_windows(square[:measured, :measured], side // window)
    np.save(folder / "table.npy", table)

    # Calibration: the scale of gray levels, noise, and signs, those of the smoothest image.
    unit = unit or table[:, 0].max() / np.sqrt(nonzeros[0]) / BRIGHTEST
    finest = (kinds == "d") & (nonzeros == nonzeros.min())
    noise = float(np.median(np.abs(table[:, finest]))) / 0.6745
    in_image = noise / unit * measured / side  # spread over all pixels by the inverse transform
    print(f"noise {noise:.4g} in a coefficient, {in_image:.1f} gray levels in a pixel")
    y, signs = (table * np.sqrt(nonzeros) / unit).T.reshape(len(phi), side // window, -1), {}
    for flips in itertools.product((1, -1), repeat=3):
        flip = np.select([kinds == kind for kind in "hvd"], flips, 1)
        image = invert(y * flip[:, None, None], phi)
        text = " ".join(f"{kind}{'+-'[sign < 0]}" for kind, sign in zip("hvd", flips, strict=True))
        signs[variation(image)] = flip
        print(f"{text}: neighbors differ by {variation(image):.2f} gray levels, "
              f"correlation {correlate(image, found['F']):.4f}")  # fmt: skip
    y = y * signs[min(signs)][:, None, None]
    judge(y, phi, found["F"].astype(float), square[:measured, :measured] / unit)
    gain = signs[min(signs)] * unit / np.sqrt(nonzeros)
    path = folder / "manifest.json"
    about = {"height": side, "width": side, "gain": gain.tolist(), "noise": noise}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"measured": about}))
    return camera


def judge(y: np.ndarray, phi: np.ndarray, picture: np.ndarray, square: np.ndarray) -> None:
    """Print whether all scales have one unit, and whether noise grows with brightness."""
    nonzeros, half = np.count_nonzero(phi, axis=(1, 2)), len(square) // 2
    blocks = picture.reshape(y.shape[1], phi.shape[1], y.shape[2], -1)
    theirs = np.einsum("hiwj,mij->mhw", blocks, phi)
    for count in np.unique(nonzeros)[::-1]:
        ours, other = (a[1:][nonzeros[1:] == count] for a in (y, theirs))
        print(f"patterns of {count} pixels: {(ours * other).sum() / (ours**2).sum():.3f} of the "
              f"other camera's unit, correlation {correlate(ours, other):.3f}")  # fmt: skip
    size = len(picture) // half  # of the finest patterns
    light = invert(y, phi).reshape(half, size, half, size).mean(axis=(1, 3))
    order = np.argsort(light, axis=None).reshape(8, -1)
    for places in order[[0, 2, 5, 7]]:
        noise = np.median(np.abs(square[half:, half:].ravel()[places])) / 0.6745
        print(f"where the image has {np.median(light.ravel()[places]):.0f}: noise {noise:.1f}")


def take(
    values: MeasuredValues, phi: np.ndarray, there: np.ndarray
) -> tuple[Patterns, MeasuredValues]:
    """Return some of the measurements (m, h, w), as those of patterns as large as the image."""
    rows, down, across = np.nonzero(there)
    side, window = values.header.height, phi.shape[1]
    whole = np.zeros((len(rows), side, side), np.int8)
    for pattern, row, i, j in zip(whole, rows, down, across, strict=True):
        pattern[i * window :, j * window :][:window, :window] = phi[row]
    return pack(whole, values.values[there][:, None, None], values.deviation[there][:, None, None])


def pack(phi: np.ndarray, y: np.ndarray, deviation: np.ndarray) -> tuple[Patterns, MeasuredValues]:
    """Return patterns of windows side by side and what was measured with them."""
    patterns, window = Patterns(phi, phi.shape[1]), phi.shape[1]
    side = y.shape[1] * window
    header = Header(side, side, "L", window, window, len(phi), patterns.hash)
    return patterns, MeasuredValues(y, header, deviation)


def main() -> None:
    """Print a table, draw a sheet of images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("camera"))
    parser.add_argument("-m", "--model", help="a network trained for haar.npy")
    parser.add_argument("--whole", action="store_true", help="all patterns as large as the image")
    parser.add_argument("--side", type=int, default=128, help="of the stand-in")
    options = parser.parse_args()
    if options.file:
        found = {matrix.name: matrix.read() for matrix in list_matrices(options.file)}
        camera = prepare(found, options.out, None)
    else:
        found = stand_in(options.side)
        camera = prepare(found, options.out, 1.0)
    phi, values = camera.phi, read_measured(options.out / "table.npy", options.out)
    whole = invert(values.values, phi)
    reference = register(found["F"], whole) if options.file else found["F"]

    # From all coefficients, from the coarsest quarter and from the strongest.
    quarter = len(phi) // 4
    energy = np.abs(values.values) / values.deviation
    strong = energy >= np.sort(energy, axis=None)[-energy.size // 4]
    coarse = np.broadcast_to((np.arange(len(phi)) < quarter)[:, None, None], energy.shape)
    sources = {
        "all": (camera.patterns, values),
        "coarsest 25 %": pack(phi[:quarter], values.values[:quarter], values.deviation[:quarter]),
        "strongest 25 %": take(values, phi, strong),
    }
    if options.whole:
        sources["all, whole"] = take(values, phi, np.ones_like(strong))
    measured = True, coarse, strong, True
    sheet = []
    for (title, (patterns, y)), there in zip(sources.items(), measured, strict=False):
        methods = {"linear": Imager.untrained(patterns), "tv": Imager.untrained(patterns, "tv")}
        if options.model and patterns.window == camera.patterns.window:
            methods["network"] = tersense.load(options.model)
        line = [("inverse", invert(np.where(there, values.values, 0), phi), 0.0)]
        for method, imager in methods.items():
            began = time.perf_counter()
            line.append((method, imager.estimate(y), time.perf_counter() - began))
        sheet.append([])
        for method, estimate, seconds in line:
            image = to_pixels(estimate)
            text = f"correlation {correlate(image, found['F']):.4f}"
            if options.file:
                text += f", {correlate(image, reference):.4f} registered"
            else:
                text += f", {psnr(image, reference):.2f} dB"
            print(f"{title}, {method}: {text}; {seconds:.1f} s", flush=True)
            sheet[-1].append((f"{title}: {method}", image))
    gray = (
        reference
        if reference.dtype == np.uint8
        else to_pixels(
            (reference - reference.mean()) / reference.std() * whole.std() + whole.mean()
        )
    )
    sheet[0].append(("CCD camera, registered" if options.file else "truth", gray))
    large = [[(text, image.repeat(2, 0).repeat(2, 1)) for text, image in line] for line in sheet]
    write_image(options.out / "images.png", draw_sheet(large))


if __name__ == "__main__":
    main()
