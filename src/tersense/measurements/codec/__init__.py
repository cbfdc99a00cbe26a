"""Measurements in few bytes, without losing one: prediction, probabilities, a range coder."""

from tersense.measurements.codec.container import CODED, FindPatterns, decode, encode, peek

__all__ = ["CODED", "FindPatterns", "decode", "encode", "peek"]
