"""What adaptive sensing gains: every way to spend the same budget, beside uniform counts.

For each model, rate and test set (`reproduce adaptive`): mean PSNR, the true measurements per
pixel, and the worst that happened to any image in comparison with uniform counts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tersense.errors import TersenseError, visible
from tersense.evaluation.protocols import score_images, summarize
from tersense.experiments.report import table_head
from tersense.experiments.testsets import find_sets, read_set
from tersense.models.adaptive import AdaptiveCamera, Mode
from tersense.models.imager import Imager

RATES = (0.04, 0.1, 0.25)


class Way(NamedTuple):
    """One way to spend a budget: its name, its label in the table, and how."""

    name: str
    label: str
    mode: Mode
    rounds: int | None = None


UNIFORM = Way("uniform", "uniform", "uniform")
WAYS = (
    UNIFORM,
    Way("open", "open loop", "open"),
    Way("encoder", "encoder", "encoder"),
    Way("change", "change (SIB-ACS)", "change"),
    *(Way(f"closed-{n}", f"closed loop, {n} rounds", "closed", n) for n in (2, 3, 5, 10)),
    Way("oracle", "oracle", "oracle"),
)


def run_adaptive(
    imagers: Sequence[Imager],
    tests: Sequence[Path],
    only: Sequence[str] = (),
    quick: bool = False,
    say: Any = print,
    decider: Imager | None = None,
) -> dict[str, Any]:
    """Measure models that can sense adaptively, in every way and at every rate of the table.

    Args:
        imagers: The models.
        tests: Folders of test images.
        only: Names of the ways to try besides uniform; none for all.
        quick: Small parts of two images of each folder: to see that it works.
        say: Is told what is done.
        decider: Who decides for all models; None for each itself.

    Returns:
        The table, ready for JSON: of each model, set, rate and way what `evaluate --json` writes,
        and `worst`, the least of PSNR minus that of uniform counts over the images.
    """
    sets = find_sets(tests, quick)
    known = {way.name for way in WAYS}
    if unknown := sorted(set(only) - known):
        offered = ", ".join(way.name for way in WAYS)
        raise TersenseError(f"rows of adaptive must be of {offered}, got {unknown[0]!r}")
    ways = [way for way in WAYS if way is UNIFORM or not only or way.name in only]
    cameras = {
        (label(imager, decider), rate): {
            way.name: AdaptiveCamera(
                imager, rate, way.mode, way.rounds, decider=None if way is UNIFORM else decider
            )
            for way in ways
        }
        for imager in imagers
        for rate in RATES
    }  # refuses what cannot be before anything is measured
    rows = []
    for (model, rate), of_ways in cameras.items():
        for test, paths in sets.items():
            row = {"model": model, "rate": rate, "set": test}
            rows.append(row | {"ways": _measure(of_ways, test, paths, quick)})
            say(_summary(rows[-1]))
    return {"table": "adaptive", "quick": quick, "rows": rows}


def label(imager: Imager, decider: Imager | None) -> str:
    """Return how a table calls a model that another may decide for."""
    return imager.name if decider is None else f"{imager.name}, decided by {decider.name}"


def _measure(
    cameras: dict[str, AdaptiveCamera], test: str, paths: list[Path], quick: bool
) -> dict[str, Any]:
    """Return the figures of every way: what `evaluate` gives, and the worst image."""
    images = read_set(paths, quick)
    scores = {name: score_images(camera, images) for name, camera in cameras.items()}
    uniform = [score.psnr for score in scores[UNIFORM.name]]
    measured = {}
    for name, camera in cameras.items():
        figures = summarize(camera, test, scores[name], None)
        gains = [  # of two exact images, with infinite PSNR, none is worse
            0.0 if s.psnr == base else s.psnr - base
            for s, base in zip(scores[name], uniform, strict=True)
        ]
        measured[name] = figures | {"adaptive": camera.describe(), "worst": _finite(min(gains))}
    return measured


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _cell(row: dict[str, Any], name: str) -> str:
    figures = row["ways"][name]
    mean, worst = figures["mean"]["psnr"], figures["worst"]
    text = "–" if mean is None else f"{mean:.2f}"
    return text if name == UNIFORM.name or worst is None else f"{text} ({worst:+.2f})"


def _summary(row: dict[str, Any]) -> str:
    cells = ", ".join(f"{name} {_cell(row, name)}" for name in row["ways"])
    return f"{row['model']} at {row['rate']:g} on {row['set']}: {cells}"


def adaptive_to_markdown(result: dict[str, Any]) -> str:
    """Return a table for each model and test set: ways down, rates across."""
    about = (
        "PSNR in dB, mean over images; in parentheses the worst difference to uniform counts over "
        "the images. All ways take the same number of measurements in every image."
    )
    lines = table_head("adaptive", [about], result["quick"])
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        tables.setdefault((row["model"], row["set"]), []).append(row)
    for (model, test), rows in tables.items():
        rates = " | ".join(f"{row['rate']:.0%}" for row in rows)
        lines += ["", f"## {model} on {test}", "", f"| | {rates} |"]
        lines.append("|---" * (1 + len(rows)) + "|")
        for way in (way for way in WAYS if way.name in rows[0]["ways"]):
            cells = " | ".join(_cell(row, way.name) for row in rows)
            lines.append(f"| {way.label} | {cells} |")
        taken = " | ".join(f"{_most(row):.4f}" for row in rows)
        lines.append(f"| measurements per pixel | {taken} |")
    return "\n".join(map(visible, lines)) + "\n"


def _most(row: dict[str, Any]) -> float:
    return max(float(figures["measurements_per_pixel"]) for figures in row["ways"].values())
