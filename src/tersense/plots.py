"""Plots of measured figures (extra `plot`)."""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tersense.errors import TersenseError
from tersense.experiments import OVERLAPPING, OWN
from tersense.files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

try:
    import matplotlib as mpl
except ImportError as error:
    raise TersenseError("plots need matplotlib: pip install 'tersense[plot]'") from error


def plot_sensing(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `bench_sensing`: time against non-zeros, one panel a picture size."""
    figure = _figure(11, 4)
    sides = sorted({case["side"] for case in result["cases"]})
    axes = figure.subplots(1, len(sides), squeeze=False)[0]
    for axis, side in zip(axes, sides, strict=True):
        cases = [case for case in result["cases"] if case["side"] == side]
        nonzeros = [case["nonzeros"] for case in cases]
        for name in cases[0]["seconds"]:
            times = [case["seconds"][name] * 1e3 for case in cases]
            own = name == "add-only"
            axis.plot(nonzeros, times, "o-", label=name, lw=2.5 if own else 1.2,
                      color="black" if own else None)  # fmt: skip
        for bound, style in (("load", "k:"), ("memory", "k--")):
            limits = [case[f"{bound}_bound_seconds"] * 1e3 for case in cases]
            axis.plot(nonzeros, limits, style, lw=1, label=f"{bound} bound")
        axis.set(title=f"{side}×{side} pixels", xlabel="non-zeros a pattern, K",
                 xscale="log", yscale="log")  # fmt: skip
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds, one thread")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    _save(figure, path)


def plot_methods(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `bench_methods`: seconds of each method, one panel a protocol."""
    figure = _figure(11, 3.6)
    axes = figure.subplots(1, len(result["cases"]), squeeze=False)[0]
    for axis, case in zip(axes, result["cases"], strict=True):
        methods = case["methods"][::-1]
        seconds = [method["median_seconds"] for method in methods]
        bars = axis.barh([method["name"] for method in methods], seconds)
        bars[-1].set_color("black")  # ours
        ratios = [method["ratio"]["median"] for method in methods]
        axis.bar_label(bars, [f"{r:,.{0 if r >= 10 else 1}f}×" for r in ratios], padding=2)
        title = f"{case['protocol']}, {case['side']}² pixels, {case['windows']} windows"
        axis.set(title=title, xlabel="seconds a picture, one thread", xscale="log")
        axis.set_xlim(min(seconds) / 3, 8 * max(seconds))  # room for the labels
        axis.grid(axis="x", alpha=0.3)
    _save(figure, path)


def plot_table(result: dict[str, Any], path: Path) -> None:
    """Draw a table of `tersense.reproduce`: PSNR of each row on each set, the paper's beside it."""
    rows = result["rows"]
    figure = _figure(max(7, 0.9 * len(rows) + 3), 5)
    axis = figure.subplots()
    places = range(len(rows))
    measured = {p for row in rows for figures in row["sets"].values() for p in figures}
    protocol = OVERLAPPING if OVERLAPPING in measured else OWN
    for name in rows[0]["sets"]:
        means = [_mean(row["sets"][name], protocol) for row in rows]
        axis.plot(places, means, "o-", label=name)
    for number, which in enumerate(("first", "second")):
        known = [(k, row["published"][number]) for k, row in enumerate(rows)]
        known = [(k, value) for k, value in known if value is not None]
        if known:
            axis.plot(*zip(*known, strict=True), "k*" if number == 0 else "kx", ms=11,
                      label=f"paper, its {which} set")  # fmt: skip
    axis.set_xticks(places, [_folded(row["label"]) for row in rows], fontsize=8)
    quick = " (a quick run, not to be compared)" if rows[0]["protocol"]["quick"] else ""
    axis.set(ylabel=f"PSNR (dB), {protocol}", title=result["table"] + quick)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)
    _save(figure, path)


def _mean(figures: dict[str, Any], protocol: str) -> float:
    """Return the mean PSNR, NaN (not drawn) where this protocol was not measured."""
    value = figures.get(protocol, {"mean": {"psnr": None}})["mean"]["psnr"]
    return math.nan if value is None else float(value)


def _folded(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 13))


def require_plot_format(path: Path) -> None:
    """Refuse a file whose ending names no format, before any work is done for it."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise TersenseError(f"cannot draw {path}: name a file ending in .png, .svg or .pdf")


def _figure(width: float, height: float) -> "Figure":
    mpl.use("agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    require_plot_format(path)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=130)
