"""Frames as AXI4-Stream Video brings them, whole and broken, for the testbench of `encoder_axis`.

A frame is written beat by beat, and with it the image that the encoder must have seen in the end: a
frame that was cut short ends in black, and so does a line; what a line has too much is not there.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tersense.export.arithmetic import Pixels, Quantizer, RowQuantizer
from tersense.export.microcode import write_mem, write_sizes
from tersense.export.test_vectors import cut_windows, measure
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns


@dataclass
class Stream:
    """Beats, and the frames that must come out of them.

    Args:
        beats: (TUSER, TLAST, pixel) of every beat.
        frames: The images as they count, (H, W) each.
        broken: Whether each of them broke the convention.
    """

    beats: list[tuple[bool, bool, int]] = field(default_factory=list)
    frames: list[Pixels] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)

    def whole(self, image: Pixels) -> None:
        """Send a frame as it should be."""
        self._add([line.tolist() for line in image], image, False)

    def cut(self, image: Pixels, count: int) -> None:
        """Send the first `count` pixels of a frame only; the next frame must follow at once."""
        width = image.shape[1]
        flat = image.ravel().tolist()[:count]
        beats = [(k == 0, k % width == width - 1, value) for k, value in enumerate(flat)]
        seen = image.copy()
        seen.reshape(-1)[count:] = 0
        self.beats += beats
        self.frames.append(seen)
        self.broken.append(True)

    def shortened(self, image: Pixels, line: int, count: int) -> None:
        """Send a frame of which one line ends after `count` pixels, fewer than it should have."""
        seen = image.copy()
        seen[line, count:] = 0
        lines = [row.tolist() for row in image]
        lines[line] = lines[line][:count]
        self._add(lines, seen, True)

    def lengthened(self, image: Pixels, line: int, extra: list[int]) -> None:
        """Send a frame of which one line is followed by more pixels."""
        lines = [row.tolist() for row in image]
        lines[line] += extra
        self._add(lines, image, True)

    def strayed(self, pixels: list[int]) -> None:
        """Send pixels that belong to no frame, as after a frame whose beginning was lost."""
        self.beats += [(False, value % 3 == 0, value) for value in pixels]

    def _add(self, lines: list[list[int]], seen: Pixels, broken: bool) -> None:
        for number, line in enumerate(lines):
            for place, value in enumerate(line):
                first = number == 0 and place == 0
                self.beats.append((first, place == len(line) - 1, value))
        self.frames.append(seen)
        self.broken.append(broken)


def make_stream(patterns: Patterns, images: Pixels, depth: int) -> Stream:
    """Send each image whole, and in every way in which a frame can be broken."""
    stream, white = Stream(), 2**depth - 1
    for image in images:
        height, width = image.shape
        stream.strayed([white, 0, white // 2])
        stream.whole(image)
        stream.cut(image[::-1], image.size // 2)
        stream.whole(image[:, ::-1])
        if width > 1:
            stream.shortened(image, height // 2, width // 2)
        stream.lengthened(image[::-1], height // 2, [white] * 3)
        stream.whole(image)
    return stream


def write_stream(
    folder: Path,
    stream: Stream,
    patterns: Patterns,
    clocks: int,
    depth: int,
    quantizer: Quantizer | RowQuantizer | None = None,
) -> None:
    """Write what the testbench reads: beats, results and their numbers."""
    geometry = Geometry(patterns.window, patterns.stride)
    y_bits = quantizer.bits if quantizer else patterns.accumulator_bits_at(depth)
    in_bits, out_bits = -(-depth // 8) * 8, -(-y_bits // 8) * 8
    beats = [(user << 1 | last) << in_bits | value for user, last, value in stream.beats]
    results: list[int] = []
    for image, broken in zip(stream.frames, stream.broken, strict=True):
        y = measure(patterns, cut_windows(geometry, image))
        values = (quantizer.codes(y) if quantizer else y).ravel()
        words = values.astype(np.int64) & ((1 << out_bits) - 1)
        words[0] |= 1 << out_bits + 1
        words[-1] |= 1 << out_bits | broken << out_bits + 2
        results += words.tolist()
    write_mem(folder / "axis_beats.mem", beats, in_bits + 2)
    write_mem(folder / "axis_results.mem", results, out_bits + 3)
    height, width = stream.frames[0].shape
    h, w = geometry.grid(height, width)
    sizes = {
        "WIDTH": width,
        "HEIGHT": height,
        "BEATS": len(beats),
        "RESULTS": len(results),
        "IN_BITS": in_bits,
        "OUT_BITS": out_bits,
        "PATIENCE": 100 * h * w * clocks,  # without a measurement
    }
    write_sizes(folder / "axis_sizes.vh", sizes)
