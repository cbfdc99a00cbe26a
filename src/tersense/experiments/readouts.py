"""How PSNR falls as the readout gets worse: fewer bits, more noise, fewer photons.

Curves of one kind for a plot, or a table of cameras under all kinds (`reproduce readouts`), each
beside the linear estimate that has the same patterns and is told the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError, visible
from tersense.evaluation.protocols import evaluate_folder, score_images, summarize
from tersense.experiments.curves import Curve
from tersense.experiments.report import table_head
from tersense.experiments.testsets import find_sets, read_set
from tersense.measurements.readout import Readout
from tersense.models.imager import Imager
from tersense.runtime.progress import Track, quietly

# What is tried where nothing else is said; 0 bits are exact values.
USUAL: dict[str, tuple[float, ...]] = {
    "bits": (4, 5, 6, 8, 10, 12),
    "noise": (1, 3, 10, 30, 100, 300),
    "photons": (0.001, 0.01, 0.1, 1, 10),
}

RATE = 0.25  # of the table
CONDITIONS = {
    "exact": Readout(),
    **{f"σ = {sigma:g}": Readout(noise=sigma, seed=1) for sigma in (60.0, 150.0, 500.0)},
    **{f"{bits} bits": Readout.ranging(bits) for bits in (8, 6, 5, 4)},
}
# Of neighboring pixels, as the linear estimate assumes it: no single one is best for every noise.
CORRELATIONS = (0.8, 0.95)


def readout_for(against: str, value: float) -> Readout:
    """Return the readout that differs from an exact one in bits, noise or photons only."""
    if against not in USUAL:
        raise TersenseError(f"PSNR is drawn against {', '.join(USUAL)}, not {against!r}")
    if against == "bits":
        return Readout.ranging(int(value))
    return Readout(noise=value) if against == "noise" else Readout(photons=value)


def measure_readouts(
    imagers: Sequence[Imager],
    images: Path,
    against: str,
    values: Sequence[float] = (),
    track: Track = quietly,
) -> list[Curve]:
    """Evaluate cameras under readouts of one kind.

    Args:
        imagers: The cameras, a curve each.
        images: A folder of images, or one.
        against: bits, noise or photons.
        values: What to try; the usual ones where nothing is said.
        track: Wraps the images to show progress.

    Returns:
        Mean PSNR against the value, a curve for each camera.
    """
    curves = []
    for imager in imagers:
        told = "" if imager.reconstructor.any_count else ", not told"
        curve = Curve(f"{imager.name}{told}")
        for value in values or USUAL.get(against, (0.0,)):
            readout = readout_for(against, value)
            result = evaluate_folder(imager, images, None, track, readout=readout)
            if result["mean"]["psnr"] is not None:  # all images came back exactly
                curve.add(value, result["mean"]["psnr"])
        curves.append(curve.sort())
    return curves


def run_readouts(
    imagers: Sequence[Imager], tests: Sequence[Path], quick: bool = False, say: Any = print
) -> dict[str, Any]:
    """Measure cameras at a rate of 0.25 under every readout of the table.

    Args:
        imagers: The cameras; each row is followed by those of linear estimates with its patterns.
        tests: Folders of test images.
        quick: Small parts of two images of each folder: to see that it works.
        say: Is told what is done.

    Returns:
        The table, ready for JSON: of each row and test set, what `evaluate --json` writes for
        every readout.
    """
    sets = find_sets(tests, quick)
    rows = []
    for imager in (imager.at_rate(RATE) for imager in imagers):
        told = "" if imager.reconstructor.any_count else ", not told"
        rows.append(_measure_row(f"{imager.name}{told}", imager, sets, quick))
        say(_summary(rows[-1]))
        for correlation in CORRELATIONS:
            label = f"linear, ρ = {correlation:g}, patterns of {imager.name}"
            linear = Imager.untrained(
                imager.patterns, "linear", device=imager.device, correlation=correlation
            )
            rows.append(_measure_row(label, linear, sets, quick))
            say(_summary(rows[-1]))
    return {"table": "readouts", "rate": RATE, "quick": quick, "rows": rows}


def _measure_row(
    label: str, imager: Imager, sets: dict[str, list[Path]], quick: bool
) -> dict[str, Any]:
    """Return the results of one camera: set → readout → figures."""
    measured: dict[str, Any] = {}
    for test, paths in sets.items():
        images = read_set(paths, quick)
        measured[test] = {}
        for condition, readout in CONDITIONS.items():
            scores = score_images(imager, images, readout)
            measured[test][condition] = summarize(imager, test, scores, None, readout=readout)
    return {"label": label, "phi": imager.patterns.hash, "sets": measured}


def _cells(row: dict[str, Any], test: str) -> list[str]:
    means = (figures["mean"]["psnr"] for figures in row["sets"][test].values())
    return ["–" if mean is None else f"{mean:.2f}" for mean in means]


def _summary(row: dict[str, Any]) -> str:
    return f"{row['label']}: " + "; ".join(
        f"{test} {' '.join(_cells(row, test))} dB" for test in row["sets"]
    )


def readouts_to_markdown(result: dict[str, Any]) -> str:
    """Return a table of mean PSNR for each test set."""
    about = [
        f"PSNR in dB, mean over images, at a sampling ratio of {result['rate']:g}: exact "
        "measurements; Gaussian noise of deviation σ (pixel values) on every measurement;",
        "codes of few bits, each pattern ranged to its measurements in the image. Linear "
        "estimates are told the error, too; ρ is the correlation of neighbors that they assume.",
    ]
    lines = table_head(result["table"], about, result["quick"])
    for test in result["rows"][0]["sets"]:
        lines += ["", f"## {test}", "", f"| | {' | '.join(CONDITIONS)} |"]
        lines.append("|---" * (1 + len(CONDITIONS)) + "|")
        lines += [f"| {row['label']} | {' | '.join(_cells(row, test))} |" for row in result["rows"]]
    return "\n".join(map(visible, lines)) + "\n"
