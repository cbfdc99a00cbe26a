"""The matrix as a program: for each pixel of a window, what to do with which accumulators.

With L lanes the rows of Φ are dealt to L banks of accumulators, one bank a lane, and a step serves
at most one row of each bank. A pixel then takes as many steps as its fullest bank has rows, so the
rows are dealt such that rows which share pixels meet in the same bank as seldom as possible.

Its memories are written in the formats that tools for FPGAs read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

MAX_LANES = 64
_ROUNDS = 2  # of exchanging rows between banks; a third brings less than 1 %


def bits_for(count: int) -> int:
    """Return the bits that number `count` things, at least one: no wire has none."""
    return max(1, (count - 1).bit_length())


class Memory(NamedTuple):
    """What a read-only memory holds: words of so many bits."""

    words: list[int]
    bits: int


@dataclass(frozen=True, eq=False)
class Program:
    """What makes an encoder compute one matrix.

    Args:
        lanes: L.
        steps: L entries {enable, first, subtract, address} a word, lane 0 lowest; with one lane
            there is no enable.
        pointers: {number of steps, first step} for every place of a pixel in a window.
        order: {lane, address} of every row of Φ.
        count_bits: Of the number of steps in a pointer.
        clocks: To issue all steps of a window; a pixel without steps takes one too.
    """

    lanes: int
    steps: Memory
    pointers: Memory
    order: Memory
    count_bits: int
    clocks: int

    @property
    def memories(self) -> dict[str, Memory]:
        """Return the memories that the encoder has; a single lane keeps the rows in order."""
        every = {"program": self.steps, "pointer": self.pointers, "order": self.order}
        return every if self.lanes > 1 else {k: v for k, v in every.items() if k != "order"}


def compile_program(patterns: Patterns, lanes: int = 1) -> Program:
    """Turn patterns into the program of an encoder with so many lanes."""
    if not 1 <= lanes <= MAX_LANES or lanes & (lanes - 1):
        raise TersenseError(f"{lanes} lanes: use a power of two from 1 to {MAX_LANES}")
    bank_bits = bits_for(-(-len(patterns) // lanes))
    entry_bits = bank_bits + (3 if lanes > 1 else 2)
    lane, address = _deal_rows(patterns, lanes)
    words: list[int] = []
    spans = []
    for entries in _entries(patterns):
        queues: list[list[int]] = [[] for _ in range(lanes)]
        for row, first, subtract in entries:
            flags = (lanes > 1) << 2 | first << 1 | subtract
            queues[lane[row]].append(flags << bank_bits | address[row])
        steps = [_join(step, entry_bits) for step in zip_longest(*queues, fillvalue=0)]
        spans.append((len(words) if steps else 0, len(steps)))
        words += steps
    words = words or [0]
    count_bits = bits_for(max(count for _, count in spans) + 1)
    start_bits = bits_for(len(words))
    pointers = [count << start_bits | start for start, count in spans]
    arranged = _by_place(pointers, Geometry(patterns.window, patterns.stride))
    places = [k << bank_bits | n for k, n in zip(lane, address, strict=True)]
    return Program(
        lanes,
        Memory(words, lanes * entry_bits),
        Memory(arranged, count_bits + start_bits),
        Memory(places, bits_for(lanes) + bank_bits),
        count_bits,
        sum(max(1, count) for _, count in spans),
    )


def _join(entries: tuple[int, ...], bits: int) -> int:
    """Put the entries of a step side by side, the first one lowest."""
    return sum(entry << k * bits for k, entry in enumerate(entries))


def _entries(patterns: Patterns) -> list[list[tuple[int, bool, bool]]]:
    """Return (row, first touch of that row, subtract) for each pixel of a window."""
    phi = patterns.phi.reshape(len(patterns), -1)
    columns: list[list[tuple[int, bool, bool]]] = [[] for _ in range(phi.shape[1])]
    touched: set[int] = set()
    for pixel, row in np.argwhere(phi.T).tolist():
        columns[pixel].append((row, row not in touched, bool(phi[row, pixel] < 0)))
        touched.add(row)
    for row in set(range(len(patterns))) - touched:  # no pixels: any pixel minus itself
        columns[0] += [(row, True, False), (row, False, True)]
    return columns


def _by_place(words: list[int], geometry: Geometry) -> list[int]:
    """Arrange the pointers as they are addressed: cell and line in it, for rows and for columns."""
    S, cells, B = geometry.stride, geometry.cells, geometry.window
    cell_bits, line_bits = (bits_for(cells) if cells > 1 else 0), bits_for(S)
    side = [(k // S) << line_bits | k % S for k in range(B)]
    arranged = [0] * (1 << 2 * (cell_bits + line_bits))
    for pixel, word in enumerate(words):
        arranged[side[pixel // B] << cell_bits + line_bits | side[pixel % B]] = word
    return arranged


def _deal_rows(patterns: Patterns, lanes: int) -> tuple[list[int], list[int]]:
    """Return the lane of each row and its address in the lane's bank."""
    m = len(patterns)
    lane = np.arange(m) % lanes
    if 1 < lanes < m:
        lane = _spread(np.abs(patterns.phi.reshape(m, -1)).astype(np.int16), lane, lanes)
    address = np.zeros_like(lane)
    for bank in range(lanes):
        address[lane == bank] = np.arange(np.count_nonzero(lane == bank))
    return lane.tolist(), address.tolist()


def _spread(support: NDArray[np.int16], lane: NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Exchange rows between banks wherever a window takes fewer steps afterwards.

    Args:
        support: (m, n), one where Φ is not zero.
        lane: (m,), where to start from.
        lanes: L.
    """
    lane = lane.copy()
    counts = np.stack([support[lane == bank].sum(axis=0) for bank in range(lanes)])
    for _ in range(_ROUNDS):
        for row in range(len(lane)):
            here, best = lane[row], (0, row)
            for there in set(range(lanes)) - {here}:
                others = np.delete(counts, [here, there], axis=0).max(axis=0, initial=0)
                rivals = np.flatnonzero(lane == there)
                gained = support[rivals] - support[row]
                tops = np.maximum(counts[here] + gained, counts[there] - gained)
                change = np.maximum(tops, others).sum(axis=1) - counts.max(axis=0).sum()
                best = min(best, (int(change.min()), int(rivals[change.argmin()])))
            if best[0] < 0:
                rival, there = best[1], lane[best[1]]
                counts[here] += support[rival] - support[row]
                counts[there] += support[row] - support[rival]
                lane[row], lane[rival] = there, here
    return lane


def write_mem(path: Path, words: Iterable[int], bits: int) -> None:
    """Write a file for `$readmemh`: one word of so many bits per line, negative ones wrapped."""
    path.write_text("\n".join(_hexadecimal(words, bits)) + "\n", encoding="ascii")


def write_sizes(path: Path, sizes: dict[str, int]) -> None:
    """Write numbers that a testbench includes."""
    lines = [f"localparam {name} = {value};\n" for name, value in sizes.items()]
    path.write_text("".join(lines), encoding="ascii")


def write_rom(folder: Path, name: str, words: list[int], bits: int) -> None:
    """Write the contents of a ROM as `.mem`, as `.coe` (Xilinx) and as `.mif` (Intel)."""
    write_mem(folder / f"{name}.mem", words, bits)
    texts = _hexadecimal(words, bits)
    head = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
    (folder / f"{name}.coe").write_text(head + ",\n".join(texts) + ";\n", encoding="ascii")
    head = f"DEPTH = {len(words)};\nWIDTH = {bits};\nADDRESS_RADIX = UNS;\nDATA_RADIX = HEX;\n"
    lines = "".join(f"{place} : {text};\n" for place, text in enumerate(texts))
    (folder / f"{name}.mif").write_text(f"{head}CONTENT BEGIN\n{lines}END;\n", encoding="ascii")


def _hexadecimal(words: Iterable[int], bits: int) -> list[str]:
    digits, mask = -(-bits // 4), (1 << bits) - 1
    return [f"{int(word) & mask:0{digits}x}" for word in words]
