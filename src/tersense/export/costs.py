"""What a designer asks first: how many operations, how much storage, and what dense would cost."""

from tersense.sensing.ternary import Patterns

HEAD = ["a window of this camera", "additions", "multiplications", "additions a pixel", "storage"]


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
