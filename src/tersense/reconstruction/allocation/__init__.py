"""Adaptive sensing: spend the measurements of an image where they pay.

A nested camera can take any number of its first rows in any window. `predictor` says what error
each window would have with more of them, from what is known of it; `curves` turns these predictions
and a budget into counts; `decision` does both with small integers, for sensors without a network.
"""

from tersense.reconstruction.allocation.curves import allocate, count_levels, spread_evenly
from tersense.reconstruction.allocation.decision import IntegerDecision
from tersense.reconstruction.allocation.predictor import ErrorPredictor, Evidence

__all__ = [
    "ErrorPredictor",
    "Evidence",
    "IntegerDecision",
    "allocate",
    "count_levels",
    "spread_evenly",
]
