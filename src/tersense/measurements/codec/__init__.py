"""Measurements in few bytes, without losing one: prediction, probabilities, a range coder."""

from tersense.measurements.codec.container import decode, encode, peek
from tersense.measurements.codec.shaping import shape_codes

__all__ = ["decode", "encode", "peek", "shape_codes"]
