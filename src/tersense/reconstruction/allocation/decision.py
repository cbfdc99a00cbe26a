"""Where to measure more, decided by small integers: for sensors without a network beside them.

A sensor has y and little else. For every window it computes, in integers that fit 32 bits:

1. What the first F rows do not tell: r_i = y_i − ((Σ_j c_ij·y_j + 64) >> 7), over the first rows j
   before i. Strong, smooth content is predicted and leaves; texture stays. The bytes c follow from
   Φ alone (see `linear_prediction`).
2. For each group of rows between two levels, L_g = log₂ Σ|r_i| in eighths: eight times the place of
   the leading one, plus the three bits after it.
3. A score for each step from one level to the next: s = (w₂·h + b₂) >> q with
   h = max(0, (w₁·L + v·A + b₁) >> 6), weights of 8 bits. A are the sums of L over the windows
   above, below, left and right, where all groups are known (v is 0 for fewer). A score is the
   logarithm of what a measurement gains there, in eighths of log₂, limited to 12 bits, −2048 to
   2046; one that is above the score before it is taken down to that.

The sensor keeps the scores of a frame. They promise too much, and where they differ little, they
differ by chance: `temper` draws them to their mean. Then it looks for the threshold at which the
windows together take what the budget allows, bit by bit: `spend`. Shifts and divisions round down,
also those of negative numbers. `export.adaptive_c` and `export.adaptive_verilog` write the
same integers for hardware.

*Open loop*: the sensor measures 40 % of the budget uniformly, decides which windows go on up to
70 %, and decides again, each window scored from the rows that it has then (`open_loop`).
*Encoder*: it has computed all sums anyway and decides once which to send. Only here does it look
around: a window that looks like its neighbors is part of a texture or of a plain, one that does not
lies at an edge. Beyond the border, and in an open loop, a window is its own neighbor.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tersense.errors import TersenseError

Integers = NDArray[np.int64]

HIDDEN = 16
HIDDEN_SHIFT, PREDICTION_SHIFT = 6, 7
EIGHTHS = 3  # bits after the leading one
_FIRST_ROWS = 10  # that predict the others; more gain little
_CORRELATION = 0.96  # of pixels side by side
_BRIGHTNESS = 2.0  # variance of a window's brightness, in that of its pixels around it
# How far scores are followed (see `temper`): the mean difference that means nothing, in eighths of
# log₂, and the most that is left of one, in eighths; where all rows are known; where few are; and
# where, besides, a step cannot be taken in part. None is followed altogether: a window starved by
# mistake loses more than another gains by what it gave up.
ENCODER_TRUST, _OPEN_TRUST, _WHOLE_TRUST = (1, 6), (2, 4), (3, 3)
SCORE_BITS = 12
_MOST_SHIFT = 32
_LOWEST_SCORE, _HIGHEST_SCORE = -(1 << (SCORE_BITS - 1)), (1 << (SCORE_BITS - 1)) - 2
TAKEN = _HIGHEST_SCORE + 1  # instead of a score: the step is measured already


class IntegerDecision(nn.Module):
    """The weights of a decision, for every number of groups that may be known.

    Args:
        rows: m.
        levels: K counts; group g are the rows from level g − 1 to level g.

    Buffers, the first dimension of most being the number of groups known, less one: `prediction`
    c (m, F) int8, `first` w₁ (K, 16, K) int8, `first_bias` (K, 16) int32, `second` w₂
    (K, K − 1, 16) int8, `second_bias` (K, K − 1) int32, `shift` q (K,) int32, `around` v (16, K)
    int8.
    """

    def __init__(self, rows: int, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels, groups = tuple(levels), len(levels)
        self.prediction: Tensor
        self.first: Tensor
        self.first_bias: Tensor
        self.second: Tensor
        self.second_bias: Tensor
        self.shift: Tensor
        self.around: Tensor
        for name, shape, kind in (
            ("prediction", (rows, min(_FIRST_ROWS, levels[0])), torch.int8),
            ("first", (groups, HIDDEN, groups), torch.int8),
            ("first_bias", (groups, HIDDEN), torch.int32),
            ("second", (groups, groups - 1, HIDDEN), torch.int8),
            ("second_bias", (groups, groups - 1), torch.int32),
            ("shift", (groups,), torch.int32),
            ("around", (HIDDEN, groups), torch.int8),
        ):
            self.register_buffer(name, torch.zeros(shape, dtype=kind))

    def check(self) -> None:
        """Refuse what no sensor could compute; a file may say anything."""
        if not ((self.shift >= 0) & (self.shift < _MOST_SHIFT)).all():
            raise TersenseError(f"decision.shift must lie between 0 and {_MOST_SHIFT - 1}")
        if self.prediction[: self.prediction.shape[1]].triu().any():
            raise TersenseError("decision.prediction must predict rows from those before them")

    def open_loop(self, y: NDArray[np.integer], budget: int) -> Integers:
        """Return how many rows each window takes (h, w) if the sensor decides as it measures.

        Args:
            y: (m, h, w), exact measurements; a decision sees those that are taken by then.
            budget: Of all windows together.
        """
        uniform = max(self.levels[0], 4 * budget // (10 * y[0].size))
        counts = np.full(y.shape[1:], self.levels[self.groups_known(uniform) - 1])
        part = max(7 * budget // 10, int(counts.sum()))
        return self.decide(y, budget, self.decide(y, part, counts, whole=True))

    def decide(
        self,
        y: NDArray[np.integer],
        budget: int,
        counts: Integers | None = None,
        whole: bool = False,
    ) -> Integers:
        """Return how many rows each window takes, (h, w).

        Args:
            y: (m, h, w), exact measurements; those beyond `counts` are ignored.
            budget: Of all windows together.
            counts: (h, w), levels that the windows were measured up to (open loop); None where all
                rows are known and none is sent yet (encoder).
            whole: Take whole steps only, so that windows end at levels and can be decided again.
        """
        if counts is None:
            scores, trust = self.scores(y), ENCODER_TRUST
        elif np.isin(counts, self.levels).all():
            steps = np.array(self.levels[1:])[:, None, None]
            scores = np.where(steps <= counts, TAKEN, self.scores(y, counts))
            trust = _WHOLE_TRUST if whole else _OPEN_TRUST
        else:
            raise ValueError(f"counts must be levels, {self.levels}, got {np.unique(counts)}")
        return spend(temper(scores, *trust), self.levels, budget, whole)

    def scores(self, y: NDArray[np.integer], known: Integers | None = None) -> Integers:
        """Return the scores (K − 1, h, w) of all steps.

        Args:
            y: (m, h, w).
            known: (h, w), how many first rows of each window a decision sees in an open loop; all
                of all windows where not given (encoder).
        """
        logs = self.logs(y)
        around = 4 * logs if known is not None else sum_around(logs)
        groups = self.groups_known(np.full(y.shape[1:], len(y)) if known is None else known)
        scores = np.empty((len(self.levels) - 1, *groups.shape), np.int64)
        for some in np.unique(groups):
            of, net = groups == some, self._net(some)
            hidden = net["first"][:, :some] @ logs[:some, of] + net["first_bias"][:, None]
            if some == len(self.levels):
                hidden += self.around.cpu().numpy().astype(np.int64) @ around[:, of]
            hidden = np.maximum(hidden >> HIDDEN_SHIFT, 0)
            scores[:, of] = (net["second"] @ hidden + net["second_bias"][:, None]) >> net["shift"]
        limited = np.clip(scores, _LOWEST_SCORE, _HIGHEST_SCORE)
        falling: Integers = np.minimum.accumulate(limited, axis=0)
        return falling

    def _net(self, groups: int) -> dict[str, Integers]:
        """Return the weights of the net for so many known groups."""
        names = ("first", "first_bias", "second", "second_bias", "shift")
        return {n: getattr(self, n)[groups - 1].cpu().numpy().astype(np.int64) for n in names}

    def groups_known(self, known: Integers | int) -> Integers:
        """Return how many groups lie among the first rows; at least one must."""
        if np.min(known) < self.levels[0]:
            raise ValueError(
                f"a decision needs the first {self.levels[0]} rows, got {np.min(known)}"
            )
        groups: Integers = np.searchsorted(self.levels, known, side="right")
        return groups

    def logs(self, y: NDArray[np.integer]) -> Integers:
        """Return L (K, h, w), the logarithm of what each group adds to the first rows."""
        rest = np.abs(residuals(y, self.prediction.cpu().numpy()))
        starts = [0, *self.levels[:-1]]
        return log2_eighths(np.add.reduceat(rest[: self.levels[-1]], starts, axis=0))


def sum_around(maps: Integers) -> Integers:
    """Return the sums of maps (…, h, w) over the windows above, below, left and right."""
    edges = [(0, 0)] * (maps.ndim - 2) + [(1, 1), (1, 1)]
    padded = np.pad(maps, edges, mode="edge")  # a window at the border is its own neighbor there
    vertical = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1]
    sums: Integers = vertical + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    return sums


def residuals(y: NDArray[np.integer], prediction: NDArray[np.int8]) -> Integers:
    """Return r (m, h, w): what the first rows do not tell of y (m, h, w)."""
    first = y[: prediction.shape[1]].astype(np.int64)
    told = np.tensordot(prediction.astype(np.int64), first, 1)
    rest: Integers = y - ((told + (1 << (PREDICTION_SHIFT - 1))) >> PREDICTION_SHIFT)
    return rest


def log2_eighths(values: Integers) -> Integers:
    """Return 8·log₂ of positive integers, the fraction cut to a straight line; 0 for 0 and 1."""
    place = np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1  # of the leading one
    fraction = (np.maximum(values, 1) << EIGHTHS >> place) & ((1 << EIGHTHS) - 1)
    logs: Integers = (place.astype(np.int64) << EIGHTHS) + fraction
    return logs


def spend(scores: Integers, levels: Sequence[int], budget: int, whole: bool = False) -> Integers:
    """Take the steps with the highest scores until the budget is spent.

    The threshold is the lowest one at which all steps that reach it fit into the budget. What is
    left goes to the steps just below it: as many rows to each, and one more to the first windows.

    Args:
        scores: (K − 1, h, w), nowhere rising, −2048 to 2046, or `TAKEN`.
        levels: K counts; all windows take the first.
        budget: Of all windows together.
        whole: Leave what no step as a whole would fit into.
    """

    def taken(threshold: int) -> Integers:
        counts: Integers = np.array(levels)[(scores >= threshold).sum(axis=0)]
        return counts

    least = int(taken(TAKEN).sum())
    if least > budget:
        raise ValueError(f"budget must be at least {least}, got {budget}")
    threshold = _LOWEST_SCORE
    for bit in reversed(range(SCORE_BITS)):
        if taken(threshold + (1 << bit) - 1).sum() > budget:
            threshold += 1 << bit
    counts, more = taken(threshold), taken(threshold - 1)
    if whole:
        return counts
    return counts + _share(more - counts, int(budget - counts.sum()))


def _share(growth: Integers, left: int) -> Integers:
    """Share out what is left: at most `growth` (h, w), to all the same, the first one more."""
    part = 0
    for bit in reversed(range(int(growth.max()).bit_length())):
        if np.minimum(growth, part + (1 << bit)).sum() <= left:
            part += 1 << bit
    shared: Integers = np.minimum(growth, part)
    more = np.flatnonzero(growth > part)[: left - int(shared.sum())]
    shared.reshape(-1)[more] += 1
    return shared


def temper(scores: Integers, chance: int, most: int) -> Integers:
    """Draw scores (K − 1, h, w) to the mean of each step, the more the less they differ.

    D, the mean of |s − mean|, says how far. What is left of a difference is (share·(s − mean)) >> 3
    with share = (D − chance) >> 1, from 0 to `most`. Steps that are taken stay so, and have no say.
    """
    undecided = scores < TAKEN
    number = undecided.sum(axis=(1, 2), keepdims=True)
    total = np.where(undecided, scores, 0).sum(axis=(1, 2), keepdims=True)
    mean = total // np.maximum(number, 1)
    apart = np.where(undecided, scores - mean, 0)
    differ = int(np.abs(apart).sum() // max(number.sum(), 1))
    share = min(max((differ - chance) >> 1, 0), most)
    drawn = np.where(undecided, mean + ((share * apart) >> 3), TAKEN)
    tempered: Integers = np.minimum.accumulate(drawn, axis=0)
    return tempered


def linear_prediction(phi: NDArray[np.int8], first_rows: int) -> NDArray[np.int8]:
    """Return c (m, F) of `residuals`: the best linear prediction of each row from the first."""
    m, covariance = len(phi), measurement_covariance(phi)
    tiny = 1e-3 * np.trace(covariance[:first_rows, :first_rows]) / first_rows
    c = np.zeros((m, first_rows))
    for row in range(1, m):
        given = min(row, first_rows)
        inner = covariance[:given, :given] + tiny * np.eye(given)
        c[row, :given] = np.linalg.solve(inner, covariance[:given, row])
    return np.clip((c * (1 << PREDICTION_SHIFT)).round(), -127, 127).astype(np.int8)


def measurement_covariance(phi: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return how measurements (m) of a window go together, (m, m), whatever the image.

    Pixels are taken to be correlated by 0.96 to the power of their distance, down plus across, and
    windows to differ in brightness.
    """
    m, window, _ = phi.shape
    steps = np.arange(window)
    along = _CORRELATION ** np.abs(steps[:, None] - steps)
    smooth = along @ phi.astype(np.float64) @ along
    sums = phi.sum(axis=(1, 2), dtype=np.float64)
    covariance = smooth.reshape(m, -1) @ phi.reshape(m, -1).T.astype(np.float64)
    together: NDArray[np.float64] = covariance + _BRIGHTNESS * np.outer(sums, sums)
    return together
