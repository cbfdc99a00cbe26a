"""The table of models as Markdown, and the points of its plot."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tersense.errors import visible
from tersense.experiments.bench.costs import CLOSED, UNIFORM, YARDSTICK
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
PEER, PEER_PSNR = "OPINE-Net+ (2020)", 34.86  # the yardstick's, on Set11 at 25 %
_BUSY = 0.8  # of the processor's time; below, seconds tell more about other programs
_WAYS = {UNIFORM: "", CLOSED: ", 3 rounds"}


class Point(NamedTuple):
    """A system in the plot."""

    label: str
    seconds: float  # per megapixel
    psnr: float


class Panel(NamedTuple):
    """What was measured on one kind of device."""

    kind: str  # cpu or cuda
    device: str
    how: str  # it was measured
    clock: str  # CPU seconds where there are any
    yardstick: float  # seconds per megapixel by it, the least beside any model
    ours: list[Point]
    converted: list[Point]  # published systems, by their multiply-adds


def panels(result: dict[str, Any]) -> list[Panel]:
    """Return the points of each device: 25 %, first set, models that were timed there."""
    rows = result["models"]
    found = []
    for kind in sorted({kind for row in rows.values() for kind in row["seconds"]}):
        timed = {name: row["seconds"][kind] for name, row in rows.items() if kind in row["seconds"]}
        ours = [
            Point(name + _WAYS[way], seconds, psnr)
            for name, times in timed.items() if rows[name]["rate"] == RATE
            for way, seconds in _compared(times).items() if way != YARDSTICK
            if (psnr := _quality(result, rows[name], way).get("psnr")) is not None
        ]  # fmt: skip
        first = next(iter(timed.values()))
        yardstick = min(_compared(times)[YARDSTICK] for times in timed.values())
        clock = "seconds per megapixel"
        clock = f"CPU {clock}, one thread" if kind == "cpu" else clock
        found.append(Panel(
            kind, first["device"], _how(list(timed.values())), clock, yardstick, ours,
            _converted(result, yardstick),
        ))  # fmt: skip
    return found


def _compared(times: dict[str, Any]) -> dict[str, float]:
    """Return the seconds that are compared: CPU time where there is any, else by the clock."""
    compared: dict[str, float] = times["cpu_seconds"] or times["seconds"]
    return compared


def _how(timed: list[dict[str, Any]]) -> str:
    first = timed[0]
    how = f"least of {first['repetitions']}, {first['side']}×{first['side']} pixels, float32"
    if first["threads"]:
        share = min(times["share"] for times in timed)
        how += f"; seconds on {first['threads']} threads, of which the program had "
        how += f"{100 * share:.0f} %"
        how += ": the machine was busy, repeat it" if share < _BUSY else ""
    return how


def _converted(result: dict[str, Any], yardstick: float) -> list[Point]:
    """Return published systems at the seconds that the yardstick takes for as many products."""
    if next(iter(result["sets"])) != PUBLISHED_SET:
        return []
    speed = result["yardstick"]["multiply_adds"] / yardstick
    return [
        Point(name, billions * 1e9 / PUBLISHED_PIXELS / speed, psnr)
        for name, (psnr, billions) in PUBLISHED.items()
    ]


def _quality(
    result: dict[str, Any], row: dict[str, Any], way: str, test: str = ""
) -> dict[str, Any]:
    """Return the means of a model on a set, the first if none is named, at its main rate."""
    known = row["sets"].get(test or next(iter(result["sets"])), {}).get(way, {})
    figures: dict[str, Any] = known.get(f"{row['rate']:.4g}", {})
    return figures


def zoo_to_markdown(result: dict[str, Any]) -> str:
    """Return the tables: costs, published systems, quality on every set, readouts."""
    devices = panels(result)
    about = [
        "PSNR in dB and SSIM, means over images; each image sensed once. Multiply-adds of the "
        "reconstruction are counted (matrix products and convolutions, zeros of Φ included)."
    ] + [
        f"On {panel.device}: {panel.how}. In turns with the yardstick, a network with the layers "
        f"of {PEER} and random weights, for its time only."
        for panel in devices
    ]
    lines = table_head("zoo", about, result["quick"])
    if devices:
        lines += ["", "## What it costs", "", *_cost_table(result, devices)]
    if any(panel.converted for panel in devices):
        lines += ["", "## Published systems, converted", "", *_published_table(result, devices)]
    for test in result["sets"]:
        lines += ["", f"## {test}", "", *_quality_table(result, test)]
        lines += _readout_table(result, test)
    return "\n".join(map(visible, lines)) + "\n"


def _cost_table(result: dict[str, Any], devices: list[Panel]) -> Iterator[str]:
    times = [head for panel in devices for head in _time_heads(panel)]
    counted = ["rate", "weights", "file, MB", "multiply-adds per pixel"]
    yield from table_columns(["", *counted, *times, next(iter(result["sets"]))])
    for name, row in result["models"].items():
        for way, cost in row["costs"].items():
            yield line([
                name + _WAYS[way], _percent(row["rate"]), f"{cost['weights']:,}",
                f"{row['bytes'] / 1e6:.1f}", f"{cost['multiply_adds']:,.0f}",
                *(cell for panel in devices for cell in _time_cells(row, panel, way)),
                _psnr(_quality(result, row, way)),
            ])  # fmt: skip
    own = result["yardstick"]
    seconds = [cell for panel in devices for cell in _yardstick_cells(result, panel)]
    products = f"{own['multiply_adds']:,.0f}"
    psnr = f"{PEER_PSNR}, published" if devices[0].converted else ""
    yield line(["*yardstick*", "25 %", f"{own['weights']:,}", "", products, *seconds, psnr])


def _time_heads(panel: Panel) -> list[str]:
    by_clock = f"{panel.device}, s/MP"
    return [by_clock, *(["CPU s/MP, one thread"] if panel.kind == "cpu" else []), "× yardstick"]


def _time_cells(row: dict[str, Any], panel: Panel, way: str) -> list[str]:
    times = row["seconds"].get(panel.kind)
    if times is None:
        return ["–"] * len(_time_heads(panel))
    compared = _compared(times)
    both = [times["seconds"][way], *([compared[way]] if panel.kind == "cpu" else [])]
    return [*(f"{seconds:.3g}" for seconds in both), f"{compared[way] / compared[YARDSTICK]:.2f}"]


def _yardstick_cells(result: dict[str, Any], panel: Panel) -> list[str]:
    timed = [row["seconds"].get(panel.kind) for row in result["models"].values()]
    by_clock = min(times["seconds"][YARDSTICK] for times in timed if times)
    both = [by_clock, *([panel.yardstick] if panel.kind == "cpu" else [])]
    return [*(f"{seconds:.3g}" for seconds in both), "1"]


def _published_table(result: dict[str, Any], devices: list[Panel]) -> Iterator[str]:
    yield (
        "Multiply-adds are those of their papers; the seconds are what the yardstick takes for as "
        "many. They are not measured, and other layers than convolutions may well be slower."
    )
    yield ""
    times = [f"{panel.device}, {panel.clock}" for panel in devices]
    yield from table_columns(["", "multiply-adds per pixel", *times, f"{PUBLISHED_SET}, 25 %"])
    for points in zip(*(panel.converted for panel in devices), strict=True):
        share = points[0].seconds / devices[0].yardstick
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
        exact = _quality(result, row, UNIFORM, test)
        lines.append(line([label, *map(_psnr, [exact, *cells])]))
    return lines


def _percent(rate: float) -> str:
    return f"{100 * rate:.0f} %"


def _psnr(figures: dict[str, Any]) -> str:
    return "–" if figures.get("psnr") is None else f"{figures['psnr']:.2f}"


def _both(figures: dict[str, Any]) -> str:
    ssim = figures.get("ssim")
    return _psnr(figures) + ("" if ssim is None else f" / {ssim:.4f}")
