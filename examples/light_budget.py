"""Simulate a single-pixel camera in little light: which patterns suffer least from shot noise?

All cameras sense blocks of 32×32 pixels in the same total time T, one frame after another, so that
each of F frames lasts T/F. A detector counts the photons of the mirrors that are on: Poisson. A
pattern of −1 and +1 takes two frames, whose counts are subtracted. "Photons per pixel" is what the
mean pixel would send in all of T. Every camera has the same estimator, `linear`, and is told the
variance of each measurement as its counts of photons tell it; a model (`-m`) stands beside the
linear estimate with its patterns. Networks are comparable if they were trained alike, as
configs/light.toml does: learned patterns of any density, Hadamard, a raster scan.

.venv/bin/pip install -c constraints.txt -e '.[plot]'
python examples/light_budget.py [IMAGE…] [-o light.png] [--dark 0 100000] [-m runs/light -m …]
python examples/light_budget.py --patterns FOLDER    # only writes hadamard.npy, raster.npy, …
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tersense
from tersense import Imager, Patterns
from tersense.evaluation.metrics import psnr
from tersense.io.images import PHOTOGRAPH, read_gray
from tersense.measurements import Header, MeasuredValues
from tersense.sensing import hadamard_patterns, random_patterns

WINDOW, ROWS = 32, 256
PHOTONS = (10, 100, 1_000, 10_000, 100_000)
DARK = (0, 100_000)
NONZEROS = (5, 51, 307, 1024)  # of patterns at random
FILES = ("hadamard", "raster", "squares")


def list_known() -> dict[str, Patterns]:
    """Return patterns that nobody learns: 256 of a block, or each of its 1,024 pixels."""
    pixels = np.eye(WINDOW**2, dtype=np.int8).reshape(-1, WINDOW, WINDOW)
    squares = np.kron(np.eye(ROWS, dtype=np.int8).reshape(-1, 16, 16), np.ones((2, 2), np.int8))
    return {
        "Hadamard": Patterns(hadamard_patterns(WINDOW, ROWS), WINDOW),
        "raster": Patterns(pixels, WINDOW),
        "raster, 2×2 pixels": Patterns(squares, WINDOW),
    }


def write_patterns(folder: Path) -> None:
    """Write the known patterns, for configs/light.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, patterns in zip(FILES, list_known().values(), strict=True):
        np.save(folder / f"{name}.npy", patterns.phi)


def load_network(name: str) -> Imager:
    """Load a model of blocks; one of several rates has that of the others."""
    imager = tersense.load(name)
    if imager.patterns.window != imager.patterns.stride:
        raise SystemExit(
            f"{name} senses windows that overlap, which no mirror device shows at once; "
            "give a camera of blocks"
        )
    lowest, rate = imager.reconstructor.lowest_rate, ROWS / WINDOW**2
    return imager.at_rate(rate) if 0 < lowest <= rate < imager.patterns.rate else imager


def list_cameras(models: list[str], nonzeros: list[int]) -> dict[str, Imager]:
    """Return the cameras to compare, each model beside the linear estimate with its patterns."""
    known, networks = list_known(), {}
    learned = {"learned, 51 of 1024": tersense.load("block-r25").patterns} if not models else {}
    names = {patterns.hash: name for name, patterns in known.items()}
    for model in models:
        imager = load_network(model)
        plus, minus = imager.patterns.signs_per_row
        of_all = f"{(plus + minus).mean():.0f} of {imager.patterns.window**2}"
        twin = f" ({imager.name})" if f"learned, {of_all}" in learned else ""
        name = names.setdefault(imager.patterns.hash, f"learned, {of_all}{twin}")
        if name not in known:
            learned[name] = imager.patterns
        networks[f"{name}; network {imager.name}"] = imager
    patterns = learned | known
    for count in nonzeros:
        drawn = random_patterns(ROWS, WINDOW, count / WINDOW**2, seed=1)
        patterns[f"random, {count} of 1024"] = drawn
    # All of the noise is told; a correlation of 0.95 is the better one for each of them.
    linear = {
        name: Imager.untrained(phi, "linear", correlation=0.95, noise=1e-3)
        for name, phi in patterns.items()
    }
    return linear | networks


def expose(
    patterns: Patterns, image: np.ndarray, photons: float, dark: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return y (m, h, w) in pixel values as counts of photons tell it, and its variance.

    A count is a poor estimate of its own variance: what is low by chance would be trusted most.
    The variance is what mirrors that are on and the mean light of the window predict.
    """
    lit = np.stack(patterns.signs_per_row)[..., None, None]  # (2, m, 1, 1): +1 and −1
    frames = np.count_nonzero(lit)  # one without mirrors is left out
    per_value = photons / image.mean() / frames  # photons of a pixel of value 1 in one frame
    counts = []
    for sign, on in zip((1, -1), lit, strict=True):
        mirrors = Patterns((patterns.phi == sign).astype(np.int8), patterns.stride)
        light = Imager.untrained(mirrors).sense(image).values * per_value
        counts.append(np.where(on > 0, rng.poisson(light + dark / frames), 0))
    light = (np.sum(counts, axis=(0, 1)) - dark) / lit.sum()  # of a mirror, in each window
    y = counts[0] - counts[1] - np.subtract(*(lit > 0).astype(int)) * dark / frames
    variance = np.maximum(light, 0) * lit.sum(axis=0) + (lit > 0).sum(axis=0) * dark / frames
    return y / per_value, (variance + 1) / per_value**2


def measure(camera: Imager, images: list[np.ndarray], photons: float, dark: float) -> float:
    """Return the mean PSNR of some images."""
    rng, scores, patterns = np.random.default_rng(2017), [], camera.patterns
    for image in images:
        y, variance = expose(patterns, image, photons, dark, rng)
        header = Header(
            *image.shape, "L", patterns.window, patterns.stride, len(patterns), patterns.hash
        )
        values = MeasuredValues(y, header, np.sqrt(variance))
        scores.append(psnr(camera.reconstruct(values), image))
    return float(np.mean(scores))


def draw_curve(axes: plt.Axes, name: str, photons: list[float], scores: list[float]) -> None:
    """Draw a curve; a network has the color of its patterns, and linear estimates are dashed."""
    of_patterns, _, network = name.partition("; ")
    same = [line for line in axes.lines if line.get_label().partition("; ")[0] == of_patterns]
    style = "-" if network else ":" if name.startswith("random") else "--"
    color = same[0].get_color() if same else None
    axes.plot(photons, scores, f"o{style}", label=name, markersize=4, color=color)


def crop(image: np.ndarray, side: int) -> np.ndarray:
    """Return the middle of an image."""
    top, left = ((length - side) // 2 for length in image.shape)
    return np.ascontiguousarray(image[top : top + side, left : left + side])


def main() -> None:
    """Print a table, draw a plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    assets = [PHOTOGRAPH.with_name(name) for name in ("camera.png", "chelsea.png", "coffee.jpg")]
    parser.add_argument("images", nargs="*", type=Path, default=assets)
    parser.add_argument("-o", "--out", type=Path, default=Path("light.png"))
    parser.add_argument(
        "--side", type=int, default=256, help="of the part of an image that is used"
    )
    parser.add_argument("--photons", type=float, nargs="*", default=PHOTONS)
    parser.add_argument("--dark", type=float, nargs="*", default=DARK, help="counts in all of T")
    parser.add_argument(
        "-m", "--model", action="append", default=[], help="its network and its patterns; several"
    )
    parser.add_argument("--nonzeros", type=int, nargs="*", default=NONZEROS, help="at random")
    parser.add_argument("--patterns", type=Path, help="only write the known ones into this folder")
    options = parser.parse_args()
    if options.patterns:
        return write_patterns(options.patterns)
    images = [crop(read_gray(path), options.side) for path in options.images]

    cameras = list_cameras(options.model, options.nonzeros)
    figure, panels = plt.subplots(
        1, len(options.dark), figsize=(3 + 4.5 * len(options.dark), 4.5), layout="constrained",
        sharey=True, squeeze=False,
    )  # fmt: skip
    for axes, dark in zip(panels[0], options.dark, strict=True):
        photons = " | ".join(f"{count:,.0f}" for count in options.photons)
        print(f"\n{dark:,.0f} dark counts, PSNR in dB\n\n| patterns | frames | on | {photons} |")
        print("|---" * (3 + len(options.photons)) + "|")
        for name, camera in cameras.items():
            lit = np.concatenate(camera.patterns.signs_per_row)
            scores = [measure(camera, images, count, dark) for count in options.photons]
            cells = " | ".join(f"{score:.2f}" for score in scores)
            print(f"| {name} | {np.count_nonzero(lit)} | {lit[lit > 0].mean():.0f} | {cells} |")
            draw_curve(axes, name, options.photons, scores)
        axes.set_xscale("log")
        axes.set_title(f"{dark:,.0f} dark counts in the whole exposure", fontsize=10)
        axes.set_xlabel("photons per pixel in the whole exposure")
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("PSNR, dB")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()
