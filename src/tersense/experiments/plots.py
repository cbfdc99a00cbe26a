"""Plots of measured figures (extra `plot`)."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError, install_hint
from tersense.experiments.curves import PAPER, Curve, read_training, table_curves
from tersense.experiments.tables import OVERLAPPING, OWN
from tersense.experiments.zoo_report import PEER, PEER_PSNR, Point, panels
from tersense.io.files import written_whole
from tersense.io.marks import plot_mark
from tersense.sensing.patterns import Patterns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

try:
    import matplotlib as mpl
    import matplotlib.ticker
except ImportError as error:
    raise TersenseError(f"plots need matplotlib: {install_hint('plot')}") from error

# Of plots of PSNR: what the axis says, what figures are multiplied by, whether it is logarithmic.
_AXES = {
    "rate": ("rate: measurements per pixel, %", 100, False),
    "density": ("density: non-zeros, %", 100, True),
    "bits": ("bits of a measurement", 1, False),
    "noise": ("noise of a measurement: deviation in pixel values", 1, True),
    "photons": ("photons of a pixel of value 1", 1, True),
}


def plot_sensing(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `bench_sensing`: time against non-zeros, one panel an image size."""
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
        axis.set(title=f"{side}×{side} pixels", xlabel="non-zeros per pattern, K",
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
        axis.set(title=title, xlabel="seconds per image, one thread", xscale="log")
        axis.set_xlim(min(seconds) / 3, 8 * max(seconds))  # room for the labels
        axis.grid(axis="x", alpha=0.3)
    _save(figure, path)


def plot_training(runs: Sequence[str | Path], path: Path) -> None:
    """Draw the loss of training runs, and PSNR on their validation images, against the step.

    Args:
        runs: Folders of training runs, or their `metrics.jsonl`.
        path: The plot.
    """
    logged = [read_training(run) for run in runs]
    labels = {"loss": "training loss", "validation_psnr": "validation PSNR (dB)"}
    panels = [key for key in labels if any(key in curves for curves in logged)]
    figure = _figure(6 * len(panels) + (2.5 if len(runs) > 1 else 0), 4.2)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    colors = _colors(len(runs))
    for axis, key in zip(axes, panels, strict=True):
        for curves, color in zip(logged, colors, strict=True):
            if key in curves:
                curve = curves[key]
                mark = "o-" if len(curve.x) < 30 else "-"
                axis.plot(curve.x, curve.y, mark, ms=4, color=color, label=curve.name)
        axis.set(xlabel="step", ylabel=labels[key])
        axis.grid(alpha=0.3)
        axis.xaxis.set_major_formatter(mpl.ticker.EngFormatter())
        if key == "loss" and all(y > 0 for curves in logged for y in curves.get(key, Curve("")).y):
            _use_readable_log(axis.yaxis)
    if len(runs) > 1:
        found = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
        entries = {label: line for pairs in found for line, label in pairs}
        figure.legend(entries.values(), entries, loc="outside right upper", frameon=False)
    else:
        axes[0].set_title(next(iter(logged[0].values())).name, loc="left")
    _save(figure, path)


def plot_psnr(curves: Sequence[Curve], against: str, path: Path, title: str = "") -> None:
    """Draw PSNR against rate or density (`read_figures`), or a readout (`measure_readouts`).

    Args:
        curves: One line each; the paper's own figures as stars.
        against: rate, density, bits, noise or photons.
        path: The plot.
        title: Above it.
    """
    figure = _figure(8.5, 4.6)
    axis = figure.subplots()
    ours = [curve for curve in curves if curve.name != PAPER]
    label, factor, logarithmic = _AXES[against]
    for curve, color in zip(ours, _colors(len(ours)), strict=True):
        axis.plot([factor * x for x in curve.x], curve.y, "o-", color=color, label=curve.name)
    for curve in curves:
        if curve.name == PAPER:
            axis.plot([factor * x for x in curve.x], curve.y, "k*", ms=11, label=curve.name)
    places = sorted({factor * x for curve in curves for x in curve.x})
    if logarithmic:
        axis.set_xscale("log")
    axis.set_xticks(places, [f"{place:.3g}" for place in places])
    axis.minorticks_off()
    axis.set(xlabel=label, ylabel="PSNR (dB)")
    axis.set_title(title, loc="left")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    _save(figure, path)


def coverage(patterns: Patterns) -> NDArray[np.int64]:
    """Return how often a pixel away from the border is used: (S, S), repeated over the image.

    Windows overlap where S < B, so that a pixel is seen from several places of the patterns.
    """
    stride, window = patterns.stride, patterns.window
    used: NDArray[np.int64] = np.zeros((stride, stride), np.int64)
    # The first window begins (B − S)/2 pixels before the image's first cell.
    places = (np.arange(window) - (window - stride) // 2) % stride
    np.add.at(used, np.ix_(places, places), np.abs(patterns.phi).sum(axis=0, dtype=np.int64))
    return used


def plot_coverage(patterns: Patterns, name: str, path: Path) -> None:
    """Draw how often each pixel is used, and how many pixels are used how often."""
    used = coverage(patterns)
    figure = _figure(10, 4.2)
    where, how_many = figure.subplots(1, 2)
    image = where.imshow(used, cmap="viridis", vmin=0, interpolation="nearest")
    whole = mpl.ticker.MaxNLocator(integer=True)
    figure.colorbar(image, ax=where, label="measurements that use the pixel", ticks=whole)
    where.set_title(f"{name}: one cell of {patterns.stride}×{patterns.stride} pixels", loc="left")
    where.set(xlabel="column", ylabel="row")
    values, counts = np.unique(used, return_counts=True)
    how_many.bar(values, counts, width=max(0.8, 0.8 * np.ptp(values) / 60), color="#31688e")
    unused = int((used == 0).sum())
    how_many.set_title(
        f"{used.min()} to {used.max()} times, {used.mean():.1f} on average; {unused} never",
        loc="left",
    )
    how_many.set(xlabel="measurements that use a pixel", ylabel="pixels of a cell")
    for axis in (how_many.xaxis, how_many.yaxis):
        axis.get_major_locator().set_params(integer=True)
    how_many.grid(axis="y", alpha=0.3)
    _save(figure, path)


_AXIS_OF_TABLE = {"rates": "rate", "sparsity": "density", "frozen": "density"}


def plot_bits(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `run_bits`: PSNR and SSIM against the size of files."""
    rows = result["rows"]
    figure = _figure(10, 4.2 * len(rows))
    for row, axes in zip(rows, figure.subplots(len(rows), 2, squeeze=False), strict=True):
        colors = _colors(len(row["methods"]))
        for (name, points), color in zip(row["methods"].items(), colors, strict=True):
            there = [point for point in points if point is not None]
            own = ", " in name  # model, mode
            for axis, place in zip(axes, (1, 2), strict=True):
                axis.plot([p[0] for p in there], [p[place] for p in there], "o-" if own else ".--",
                          label=row["labels"][name], lw=2 if own else 1.2, color=color)  # fmt: skip
        for axis, label in zip(axes, ("PSNR, dB", "SSIM"), strict=True):
            axis.set(title=row["set"], xlabel="bits per pixel of whole files", ylabel=label,
                     xscale="log")  # fmt: skip
            axis.grid(alpha=0.3)
            _use_readable_log(axis.xaxis)
        axes[0].legend(fontsize=8)
    _save(figure, path)


def plot_zoo(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `run_zoo`: PSNR on its first set against seconds, a panel a device."""
    drawn = panels(result)
    figure = _figure(8 * len(drawn), 5.2)
    axes = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axis, panel in zip(axes, drawn, strict=True):
        axis.plot([p.seconds for p in panel.ours], [p.psnr for p in panel.ours], "ko",
                  label="ours, measured")  # fmt: skip
        for point in panel.ours:
            _name_point(axis, point, (-7, 4), "black")
        published = panel.converted
        if published:
            axis.plot([p.seconds for p in published], [p.psnr for p in published], "D",
                      color="tab:gray", mfc="none",
                      label="published, seconds converted from multiply-adds")  # fmt: skip
        for point in published:  # some lie close: make room for the name of the better one
            crowded = any(0 < other.psnr - point.psnr < 0.1 for other in published)
            _name_point(axis, point, (7, -11 if crowded else 4), "tab:gray")
        axis.axvline(panel.yardstick, ls=":", color="tab:gray",
                     label=f"the arithmetic of {PEER}, measured")  # fmt: skip
        if panel.converted:
            axis.plot(panel.yardstick, PEER_PSNR, "s", color="tab:gray",
                      label="its published PSNR")  # fmt: skip
        axis.margins(x=0.2)
        _use_readable_log(axis.xaxis)
        axis.set(title=panel.device, xlabel=panel.clock,
                 ylabel=f"PSNR (dB), {next(iter(result['sets']))}, 25 %")  # fmt: skip
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower right")
    _save(figure, path)


def _name_point(axis: Any, point: Point, offset: tuple[int, int], color: str) -> None:
    side = "left" if offset[0] > 0 else "right"
    axis.annotate(point.label, (point.seconds, point.psnr), offset, textcoords="offset points",
                  ha=side, fontsize=8, color=color)  # fmt: skip


def plot_table(result: dict[str, Any], path: Path) -> None:
    """Draw a table of `tersense.experiments.runner`, the paper's figures beside ours.

    Tables of rates and densities are curves; the others are one place a row.
    """
    against = _AXIS_OF_TABLE.get(result["table"])
    quick = " (a quick run, not to be compared)" if result["rows"][0]["protocol"]["quick"] else ""
    if against:
        plot_psnr(table_curves(result, against), against, path, result["table"] + quick)
    else:
        _plot_rows(result, path, result["table"] + quick)


def _plot_rows(result: dict[str, Any], path: Path, title: str) -> None:
    rows = result["rows"]
    figure = _figure(max(7, 0.9 * len(rows) + 3), 5)
    axis = figure.subplots()
    places = range(len(rows))
    names = list(rows[0]["sets"])
    for name, color in zip(names, _colors(len(names)), strict=True):
        for protocol, style in ((OVERLAPPING, "o-"), (OWN, "o:")):  # not every row has both
            means = [_mean(row["sets"][name], protocol) for row in rows]
            if not all(map(math.isnan, means)):
                face = color if protocol == OVERLAPPING else "none"
                axis.plot(places, means, style, color=color, mfc=face, label=f"{name}, {protocol}")
    for number, which in enumerate(("first", "second")):
        known = [(k, row["published"][number]) for k, row in enumerate(rows)]
        known = [(k, value) for k, value in known if value is not None]
        if known:
            axis.plot(*zip(*known, strict=True), "k*" if number == 0 else "kx", ms=11,
                      label=f"paper, its {which} set")  # fmt: skip
    axis.set_xticks(places, [_folded(row["label"]) for row in rows], fontsize=8)
    axis.set(ylabel="PSNR (dB)", title=title)
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


def _colors(count: int) -> list[Any]:
    """Return colors that are told apart: of a cycle for few, along a map for many."""
    if count <= 10:
        return [f"C{number}" for number in range(count)]
    return [mpl.colormaps["turbo"](0.05 + 0.9 * number / (count - 1)) for number in range(count)]


def _use_readable_log(axis: Any) -> None:
    """Make an axis logarithmic, with plain numbers, also where it spans less than a decade."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = axis.get_view_interval()
    places = (1, 2, 5) if high > 50 * low else (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_major_locator(mpl.ticker.LogLocator(subs=places))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(mpl.ticker.NullLocator())


def _figure(width: float, height: float) -> "Figure":
    mpl.use("agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    require_plot_format(path)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=130, metadata=plot_mark(path.suffix))
