"""The table of models as Markdown, and the points of its plot."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tersense.errors import visible
from tersense.experiments.bench.costs import CLOSED, EVEN
from tersense.experiments.report import line, table_columns, table_head
from tersense.experiments.zoo import RATE

# PSNR on Set11 at 25 % and multiply-adds (10⁹) for an image of 256×256 pixels, as published.
PUBLISHED_SET, PUBLISHED_PIXELS = "Set11", 256**2
PUBLISHED = {
    "CPP-Net (2024)": (36.35, 167),
    "USB-Net (2025)": (36.42, 96),
    "MHC-DUN (2026)": (36.87, 232),
    "HATNet (2024)": (37.24, 500),
    "ADMM-ProxUnroll (2025)": (37.35, 107),
}
YARDSTICK = "OPINE-Net+ (2020)"
YARDSTICK_PSNR = 34.86  # published, on Set11 at 25 %
_WAYS = {EVEN: "", CLOSED: ", 3 rounds"}


class Point(NamedTuple):
    """A system in the plot."""

    label: str
    seconds: float  # per megapixel
    psnr: float


class Panel(NamedTuple):
    """What was measured on one device."""

    device: str
    yardstick: float  # seconds per megapixel
    ours: list[Point]
    converted: list[Point]  # published systems, by their multiply-adds


def panels(result: dict[str, Any]) -> list[Panel]:
    """Return the points of each device: 25 %, first set, models that have been measured there."""
    found = []
    for kind in _devices(result):
        timed = {n: row for n, row in result["models"].items() if kind in row["seconds"]}
        ours = [
            Point(name + _WAYS[way], seconds, psnr)
            for name, row in timed.items() if row["rate"] == RATE
            for way, seconds in row["seconds"][kind]["ways"].items()
            if (psnr := _quality(result, row, way).get("psnr")) is not None
        ]  # fmt: skip
        yardstick = _yardstick_seconds(result, kind)
        found.append(Panel(_device(result, kind), yardstick, ours, _converted(result, yardstick)))
    return found


def _devices(result: dict[str, Any]) -> list[str]:
    kinds = {kind for row in result["models"].values() for kind in row["seconds"]}
    return sorted(kinds)


def _device(result: dict[str, Any], kind: str) -> str:
    timed = next(r["seconds"][kind] for r in result["models"].values() if kind in r["seconds"])
    threads = f", {timed['threads']} threads" if timed["threads"] else ""
    return f"{timed['device']}{threads}"


def _yardstick_seconds(result: dict[str, Any], kind: str) -> float:
    """Return the least seconds per megapixel of the yardstick, beside any model."""
    timed = (r["seconds"][kind] for r in result["models"].values() if kind in r["seconds"])
    return min(float(times["yardstick"]) for times in timed)


def _converted(result: dict[str, Any], yardstick: float) -> list[Point]:
    """Return published systems at the seconds that the yardstick takes for as many products."""
    if next(iter(result["sets"])) != PUBLISHED_SET:
        return []
    speed = result["yardstick"]["multiply_adds"] / yardstick
    others = {
        name: Point(name, billions * 1e9 / PUBLISHED_PIXELS / speed, psnr)
        for name, (psnr, billions) in PUBLISHED.items()
    }
    return [Point(YARDSTICK, yardstick, YARDSTICK_PSNR), *others.values()]


def _quality(
    result: dict[str, Any], row: dict[str, Any], way: str, test: str = "", rate: float = 0
) -> dict[str, Any]:
    """Return the means of a model on a set, the first if none is named, at the rate of costs."""
    known = row["sets"].get(test or next(iter(result["sets"])), {}).get(way, {})
    figures: dict[str, Any] = known.get(f"{rate or row['rate']:.4g}", {})
    return figures


def zoo_to_markdown(result: dict[str, Any]) -> str:
    """Return the tables: costs, published systems, quality on every set, readouts."""
    lines = table_head("zoo", list(_about(result)), result["quick"])
    if any(row["costs"] for row in result["models"].values()):
        lines += ["", "## What it costs", "", *_cost_table(result)]
    if any(panel.converted for panel in panels(result)):
        lines += ["", "## Published systems, converted", "", *_published_table(result)]
    for test in result["sets"]:
        lines += ["", f"## {test}", "", *_quality_table(result, test)]
        lines += _readout_table(result, test)
    return "\n".join(map(visible, lines)) + "\n"


def _about(result: dict[str, Any]) -> Iterator[str]:
    yield (
        "PSNR in dB and SSIM, means over images; each image sensed once. Multiply-adds of the "
        "reconstruction are counted (matrix products and convolutions, zeros of Φ included)."
    )
    for kind in _devices(result):
        timed = next(r["seconds"][kind] for r in result["models"].values() if kind in r["seconds"])
        yield (
            f"Seconds on {_device(result, kind)}: least of {timed['repetitions']}, "
            f"{timed['side']}×{timed['side']} pixels, float32, in turns with the yardstick: a "
            f"network with the layers of {YARDSTICK} and random weights, for its time only."
        )


def _cost_table(result: dict[str, Any]) -> Iterator[str]:
    kinds, first = _devices(result), next(iter(result["sets"]))
    times = [head for kind in kinds for head in (f"s/MP, {_device(result, kind)}", "× yardstick")]
    yield from table_columns(
        ["", "rate", "weights", "file, MB", "multiply-adds per pixel", *times, first]
    )
    for name, row in result["models"].items():
        for way, cost in row["costs"].items():
            seconds = [cell for kind in kinds for cell in _time_cells(row, kind, way)]
            size = f"{row['bytes'] / 1e6:.1f}"
            yield line([
                name + _WAYS[way], _percent(row["rate"]), f"{cost['weights']:,}", size,
                f"{cost['multiply_adds']:,.0f}", *seconds, _psnr(_quality(result, row, way)),
            ])  # fmt: skip
    own = result["yardstick"]
    seconds = [c for kind in kinds for c in (f"{_yardstick_seconds(result, kind):.3g}", "1")]
    yield line([
        "*yardstick*", "25 %", f"{own['weights']:,}", "", f"{own['multiply_adds']:,.0f}", *seconds,
        "",
    ])  # fmt: skip


def _time_cells(row: dict[str, Any], kind: str, way: str) -> tuple[str, str]:
    if kind not in row["seconds"]:
        return "–", "–"
    timed = row["seconds"][kind]
    return f"{timed['ways'][way]:.3g}", f"{timed['ways'][way] / timed['yardstick']:.2f}"


def _published_table(result: dict[str, Any]) -> Iterator[str]:
    found = panels(result)
    yield (
        "Multiply-adds are those of their papers; the seconds are what the yardstick takes for as "
        "many. They are not measured, and other layers than convolutions may well be slower."
    )
    yield ""
    times = [f"s/MP, {panel.device}" for panel in found]
    yield from table_columns(["", "multiply-adds per pixel", *times, f"{PUBLISHED_SET}, 25 %"])
    for points in zip(*(panel.converted for panel in found), strict=True):
        share = points[0].seconds / found[0].yardstick
        products = f"{share * result['yardstick']['multiply_adds']:,.0f}"
        seconds = [f"{point.seconds:.3g}" for point in points]
        yield line([points[0].label, products, *seconds, f"{points[0].psnr:.2f}"])


def _quality_table(result: dict[str, Any], test: str) -> Iterator[str]:
    ways = [(name, row["sets"].get(test, {}).get(way, {}), way)
            for name, row in result["models"].items() for way in _WAYS]  # fmt: skip
    measured = [(name + _WAYS[way], cells) for name, cells, way in ways if cells]
    rates = sorted({float(rate) for _, cells in measured for rate in cells})
    columns = list(dict.fromkeys(map(_percent, rates)))
    yield from table_columns(["", *columns])
    for label, cells in measured:
        by_column = {_percent(float(rate)): figures for rate, figures in cells.items()}
        yield line([label, *(_both(by_column.get(column, {})) for column in columns)])


def _readout_table(result: dict[str, Any], test: str) -> list[str]:
    rows = {n: row for n, row in result["models"].items()
            if row["sets"].get(test, {}).get("readouts")}  # fmt: skip
    if not rows:
        return []
    names = list(next(iter(rows.values()))["sets"][test]["readouts"])
    lines = ["", f"### {test}, readouts at 25 %", "", *table_columns(["", "exact", *names])]
    for model, row in rows.items():
        label = model if row["told"] else f"{model}, not told"
        cells = [row["sets"][test]["readouts"].get(name, {}) for name in names]
        exact = _quality(result, row, EVEN, test)
        lines.append(line([label, *map(_psnr, [exact, *cells])]))
    return lines


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f} %"


def _psnr(figures: dict[str, Any]) -> str:
    return "–" if figures.get("psnr") is None else f"{figures['psnr']:.2f}"


def _both(figures: dict[str, Any]) -> str:
    ssim = figures.get("ssim")
    return _psnr(figures) + ("" if ssim is None else f" / {ssim:.4f}")
