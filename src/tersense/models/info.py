"""The figures that a designer asks for first, of a model and of a measurement file."""

import math
from pathlib import Path

from tersense.errors import TersenseError
from tersense.io.deep import DEEPEST
from tersense.measurements.counts import Counts, count_all
from tersense.measurements.measurements import Measurements
from tersense.models.imager import Imager
from tersense.models.zoo import share_patterns
from tersense.sensing.patterns import Patterns

COST_HEAD = ["per window", "additions", "multiplications", "additions per pixel", "storage"]

_COLORS = {"L": "gray", "RGB": "color", "YCC": "color as brightness and differences"}


def describe(imager: Imager) -> dict[str, str]:
    """Return names and values, ready to print."""
    patterns = imager.patterns
    m, n, window = len(patterns), patterns.window**2, patterns.window
    plus, minus = patterns.signs_per_row
    nonzeros = plus + minus
    dense = m * n
    kind = "blocks" if patterns.stride == window else "lapped"
    steps, seconds = imager.about.get("steps"), imager.about.get("step_seconds")
    facts = {
        "patterns": f"{m} of {window}×{window} pixels, every {patterns.stride} ({kind})",
        "rate": f"{patterns.rate:.4g} measurements per pixel",
        "non-zeros": f"{_range(nonzeros.min(), nonzeros.max())} per pattern, "
        f"{patterns.density:.2%}",
        "arithmetic per window": f"{patterns.nonzeros:,} additions; dense: {dense:,} multiply-adds",
        "arithmetic per pixel": f"{patterns.nonzeros / patterns.stride**2:.2f} additions; "
        f"dense: {dense / patterns.stride**2:.0f} multiply-adds",
        "accumulator": f"{patterns.accumulator_bits} bits, measurements as "
        f"{patterns.measurement_dtype}",
        f"for pixels of {DEEPEST} bits": f"{patterns.accumulator_bits_at(DEEPEST)} bits",
    }
    for form, size in patterns.storage_bytes.items():
        facts[f"Φ as {form}"] = f"{size / 1024:.2f} KiB"
    facts["reconstructor"] = (
        f"{imager.reconstructor.registered_name}, {imager.parameters:,} weights"
    )
    facts["normalization"] = f"mean {imager.mean:.2f}, deviation {imager.std:.2f}"
    if steps is not None:
        facts["training"] = f"{steps} steps, {seconds} s on {imager.about.get('machine')}"
    facts["hash of Φ"] = patterns.hash
    return facts


def describe_measurements(path: str | Path) -> dict[str, str]:
    """Return names and values of a measurement file, ready to print."""
    header, counts = Measurements.peek(path)
    size, pixels = Path(path).stat().st_size, header.height * header.width * header.channels
    most = header.channels * math.prod(header.shape[-3:])
    taken = most if counts is None else count_all(counts, header.shape)
    window, color = header.window, _COLORS[header.mode]
    each = "" if header.mode == "L" else " of each channel"
    try:
        model = " or ".join(share_patterns(header.phi, header.stride, header.rows))
    except TersenseError:
        model = "none that comes with the package"
    return {
        "image": f"{header.width}×{header.height}, {color}, {header.depth} bits per pixel{each}",
        "patterns": f"{header.rows} of {window}×{window} pixels, every {header.stride}",
        "measurements": f"{taken:,}, {taken / pixels:.4g} per pixel{each}",
        **_describe_counts(counts, taken / most),
        "readout": str(header.readout),
        "size": f"{8 * size / pixels:.3g} bits per pixel{each}; {size:,} bytes",
        "model": model,
        "hash of Φ": header.phi,
    }


def _describe_counts(counts: Counts | None, share: float) -> dict[str, str]:
    if counts is None:
        return {}
    spread = f"fewest {counts.min()}, mean {counts.mean():.4g}, most {counts.max()}"
    return {"per window": f"{spread}; {share:.1%} of what all patterns would give"}


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def cost_rows(patterns: Patterns) -> list[list[str]]:
    """Return the rows of a table: this camera, the same matrix dense in 8 bits and in float."""
    m, n, pixels = len(patterns), patterns.window**2, patterns.stride**2
    dense = m * n
    storage = patterns.storage_bytes
    return [
        _row("sparse ternary", patterns.nonzeros, 0, pixels, storage["CSC"]),
        _row("dense, 8 bits", dense, dense, pixels, storage["int8"]),
        _row("dense, float32", dense, dense, pixels, storage["float32"]),
    ]


def _row(name: str, additions: int, products: int, pixels: int, size: int) -> list[str]:
    per_pixel = f"{additions / pixels:.2f}"
    return [name, f"{additions:,}", f"{products:,}", per_pixel, f"{size / 1024:.2f} KiB"]
