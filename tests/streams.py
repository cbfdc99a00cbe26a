"""Random video for the AXI4-Stream wrapper, and its testbench run on it."""

import re

import numpy as np

from tersense.export.arithmetic import make_quantizer
from tersense.export.base import export
from tersense.export.stream import Stream, write_stream
from tools import run_tool

PASSED = re.compile(r"PASS: (\d+) frames \((\d+) broken\), (\d+) measurements, (\d+) clocks")


def random_stream(rng, count, size, depth):
    """Send `count` random frames, three of ten broken in some way; the last one is whole."""
    stream, (height, width) = Stream(), size

    def pixels(number):
        return rng.integers(0, 2**depth, number).tolist()

    while len(stream.frames) < count:
        image = rng.integers(0, 2**depth, size).astype(np.uint16 if depth > 8 else np.uint8)
        way = rng.integers(10) if len(stream.frames) < count - 1 else 9
        if way == 0 and image.size > 1:
            stream.cut(image, int(rng.integers(1, image.size)))
        elif way == 1 and width > 1:
            stream.shortened(image, int(rng.integers(height)), int(rng.integers(1, width)))
        elif way == 2:
            extra = pixels(rng.integers(1, 2 * width + 2))
            stream.lengthened(image, int(rng.integers(height)), extra)
        else:
            stream.whole(image)
            if way == 3:
                stream.strayed(pixels(rng.integers(1, 2 * width + 2)))
    return stream


def export_stream(folder, imager, rng, frames, size, depth=8, **options):
    """Export an encoder whose AXI4-Stream testbench sends random video of one size."""
    manifest, _ = export("verilog", imager, folder, depth=depth, **options)
    converter = (options.get(name) for name in ("bits", "step", "steps"))
    quantizer = make_quantizer(imager.patterns, depth, *converter)
    stream = random_stream(rng, frames, size, depth)
    clocks = manifest.details["clocks_per_window"]
    write_stream(folder / "axis", stream, imager.patterns, clocks, depth, quantizer)
    return stream


def build_axis(folder):
    """Compile the testbench as README.md tells."""
    sources = [str(path.relative_to(folder)) for path in sorted(folder.glob("**/*.v"))]
    flags = ("-g2005", "-Wall", "-s", "testbench_axis", "-I", "axis")
    return run_tool(folder, "iverilog", *flags, "-o", "sim_axis", *sources)


def simulate_axis(folder, stall=50, seed=1, rounds=1):
    """Run the testbench; return frames, broken ones, measurements and clocks, or what it says."""
    options = f"+stall={stall}", f"+seed={seed}", f"+rounds={rounds}"
    printed = run_tool(folder, "vvp", "sim_axis", *options)
    verdict = PASSED.search(printed)
    return tuple(map(int, verdict.groups())) if verdict else printed
