"""Measurements in few bytes, without losing one: prediction, probabilities, a range coder."""

from tersense.measurements.codec.container import CODED, decode, encode, peek

__all__ = ["CODED", "decode", "encode", "peek"]
