"""From an image to its measurements: y = Φx.

`geometry` says where the windows lie, `patterns` holds a frozen Φ, `bases` makes those of Haar and
Hadamard, `ternary` learns one (the paper's Algorithm 1), `operator` applies Φ and Φᵀ to tensors,
`gram` inverts ΦΦᵀ, and `exact` senses uint8 images as exact integers (`additions`: its CPU kernel).
"""

from tersense.sensing.bases import haar_patterns, haar_windows, hadamard_patterns
from tersense.sensing.exact import ExactSensor, sense_exactly
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator, SparseOperator, dot_test
from tersense.sensing.patterns import Patterns, random_patterns, read_patterns
from tersense.sensing.sensors import DenseSensor, FixedSensor
from tersense.sensing.ternary import TernarySensor, ternarize

__all__ = [
    "DenseSensor",
    "ExactSensor",
    "FixedSensor",
    "Geometry",
    "Patterns",
    "SensingOperator",
    "SparseOperator",
    "TernarySensor",
    "dot_test",
    "haar_patterns",
    "haar_windows",
    "hadamard_patterns",
    "random_patterns",
    "read_patterns",
    "sense_exactly",
    "ternarize",
]
