"""The decision of a sensor for hardware: its sizes, and frames to try it with.

`IntegerDecision` says where to measure more. Here it is bounded: from the widest measurement follow
the widest residual, sum, logarithm, hidden number and score, so that registers and types hold
everything that can come and nothing is ever rounded otherwise than in Python.
`adaptive_c` and `adaptive_verilog` write it out.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.export.arithmetic import limits
from tersense.export.test_vectors import cut_windows, measure, photograph
from tersense.io.deep import USUAL
from tersense.models.imager import Imager
from tersense.reconstruction.allocation.decision import (
    EIGHTHS,
    HIDDEN_SHIFT,
    PREDICTION_SHIFT,
    IntegerDecision,
)
from tersense.sensing.geometry import Geometry

FRAME = (3, 4)  # windows of a test frame, down and across
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Frame:
    """Measurements of a frame, and how they are to be decided.

    Args:
        y: (h, w, m), exact; what is not known is ignored.
        counts: (h, w), what each window was measured with; None for an encoder, which knows all.
        budget: Of all windows together.
        whole: Whether to take whole steps only.
    """

    y: Integers
    counts: Integers | None
    budget: int
    whole: bool = False

    def decide(self, decision: IntegerDecision) -> tuple[Integers, Integers]:
        """Return the scores (windows, K − 1) and the counts (windows,) that Python finds."""
        y = np.moveaxis(self.y, -1, 0)
        scores = decision.scores(y, self.counts)
        counts = decision.decide(y, self.budget, self.counts, self.whole)
        return scores.reshape(len(scores), -1).T, counts.reshape(-1)

    @property
    def rows(self) -> Integers:
        """How many rows of each window the decision is told, (h, w)."""
        known = np.full(self.y.shape[:2], self.y.shape[-1])
        return known if self.counts is None else self.counts

    @property
    def values(self) -> list[Integers]:
        """The rows that are known, of one window after the other."""
        windows = self.y.reshape(-1, self.y.shape[-1])
        return [y[:known] for y, known in zip(windows, self.rows.flat, strict=True)]

    @property
    def order(self) -> tuple[int, int, int]:
        """Whether what is known is taken, whether to take whole steps only, and the budget."""
        return int(self.counts is not None), int(self.whole), self.budget


def require_decision(imager: Imager, depth: int, bits: int | None) -> IntegerDecision:
    """Return the decision of a camera, if it has one and the export can hold it."""
    decision = imager.camera.decision
    if decision is None:
        raise TersenseError(
            f"{imager.name} has no decision for sensors; use all rows (no --rate) of a model that "
            "was trained with train.allocation=true"
        )
    if depth != USUAL or bits is not None:
        raise TersenseError(
            f"an adaptive export must have pixels of {USUAL} bits and exact measurements, which "
            "decisions are made for; leave out --depth, --bits and --steps (in C, --coder rounds "
            "what is sent)"
        )
    return copy.deepcopy(decision).cpu()


class Sizes:
    """How large the numbers of a decision become, for measurements within ±`largest`."""

    def __init__(self, decision: IntegerDecision, largest: int) -> None:
        self.decision, self.largest = decision, largest
        self.levels = decision.levels

    @classmethod
    def of(cls, decision: IntegerDecision, imager: Imager) -> "Sizes":
        """Return those of a camera."""
        return cls(decision, max(1, *(abs(limit) for limit in limits(imager.patterns))))

    @property
    def first_rows(self) -> int:
        """F, the rows that predict the others."""
        return int(self.decision.prediction.shape[1])

    @property
    def count_bits(self) -> int:
        """Bits that hold a count."""
        return self.levels[-1].bit_length()

    @cached_property
    def told(self) -> Integers:
        """The largest sum that predicts each row, (m,)."""
        weights = np.abs(self.decision.prediction.numpy().astype(np.int64)).sum(axis=1)
        told: Integers = weights * self.largest + (1 << PREDICTION_SHIFT)
        return told

    @cached_property
    def group(self) -> int:
        """The largest sum of a group's residuals."""
        rests = self.largest + (self.told >> PREDICTION_SHIFT) + 1
        starts = [0, *self.levels[:-1]]
        return int(np.add.reduceat(rests[: self.levels[-1]], starts).max())

    @property
    def log(self) -> int:
        """The largest logarithm."""
        return (self.group.bit_length() << EIGHTHS) - 1

    @cached_property
    def hidden(self) -> int:
        """The largest hidden number before its shift."""
        own = _reach(self.decision.first.numpy(), self.decision.first_bias.numpy(), self.log)
        return own + _reach(self.decision.around.numpy(), np.zeros(1, np.int64), 4 * self.log)

    @cached_property
    def score(self) -> int:
        """The largest score before its shift."""
        below = self.hidden >> HIDDEN_SHIFT
        return _reach(self.decision.second.numpy(), self.decision.second_bias.numpy(), below)

    @property
    def sum_bits(self) -> int:
        """Bits that hold a group's sum; the three after the leading one must be there."""
        return max(4, self.group.bit_length())

    @property
    def log_bits(self) -> int:
        """Bits that hold a logarithm: the place of the leading one, and three after it."""
        return (self.sum_bits - 1).bit_length() + EIGHTHS

    @property
    def operand_bits(self) -> int:
        """Bits that hold whatever is multiplied with a weight, and its sign."""
        largest = max(self.largest, 4 * self.log, self.hidden >> HIDDEN_SHIFT)
        return largest.bit_length() + 1

    @property
    def acc_bits(self) -> int:
        """Bits that hold every sum of products, every residual, and their signs."""
        largest = max(int(self.told.max()), 2 * self.largest, self.hidden, self.score, 2048)
        return largest.bit_length() + 1


def _reach(weights: NDArray[np.integer], biases: NDArray[np.integer], largest: int) -> int:
    """Return the largest magnitude of bias + weights · numbers up to `largest`, in any order."""
    sums = np.abs(weights.astype(np.int64)).sum(axis=-1) * largest
    return int((sums + np.abs(biases.astype(np.int64))).max())


def make_frames(imager: Imager, decision: IntegerDecision, seed: int = 0) -> list[Frame]:
    """Return frames of all kinds: real, random, extreme; open and encoder; poor and rich."""
    random = np.random.default_rng(seed)
    levels, windows, rows = decision.levels, FRAME[0] * FRAME[1], len(imager.patterns)
    geometry = Geometry(imager.patterns.window, imager.patterns.stride)
    image = photograph(FRAME[0] * geometry.stride, FRAME[1] * geometry.stride)
    real = measure(imager.patterns, cut_windows(geometry, image)).astype(np.int64)
    lowest, highest = limits(imager.patterns)
    ends = random.choice([lowest, highest], (*FRAME, rows))
    middle = levels[(len(levels) - 1) // 2]
    least, half = np.full(FRAME, levels[0]), np.full(FRAME, middle)
    return [
        Frame(real, None, windows * middle),
        Frame(real, half, windows * min(2 * middle, rows) - 1),
        Frame(real, least, windows * middle + 5, whole=True),
        Frame(real, None, windows * rows),
        Frame(np.zeros_like(real), least, windows * levels[0] + 7),
        Frame(ends, None, windows * (levels[0] + rows) // 2),
        *random_frames(decision, (lowest, highest), FRAME, 4, random),
    ]


def random_frames(
    decision: IntegerDecision,
    ends: tuple[int, int],
    shape: tuple[int, int],
    count: int,
    random: np.random.Generator,
) -> list[Frame]:
    """Return frames of measurements of all magnitudes, with any budget and any mode."""
    frames, levels, rows = [], np.array(decision.levels), len(decision.prediction)
    for _ in range(count):
        sizes = 2.0 ** -random.uniform(0, 12, (*shape, 1)) * random.uniform(0, 1, (*shape, rows))
        y = np.where(random.random((*shape, rows)) < 0.5, ends[0] * sizes, ends[1] * sizes)
        counts = random.choice(levels[: random.integers(1, len(levels) + 1)], shape)
        taken = None if random.random() < 0.3 else counts
        least = levels[0] * counts.size if taken is None else counts.sum()
        budget = int(random.integers(least, rows * counts.size + 1))
        frames.append(Frame(y.astype(np.int64), taken, budget, bool(random.random() < 0.3)))
    return frames


def frame_words(decision: IntegerDecision, frames: Sequence[Frame]) -> tuple[Integers, Integers]:
    """Return what Python decides for all frames: scores (windows, K − 1), and counts."""
    found = [frame.decide(decision) for frame in frames]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])
