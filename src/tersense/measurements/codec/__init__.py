"""Measurements in few bytes, without losing one: prediction, probabilities, a range coder."""

from tersense.measurements.codec.container import decode, encode, peek

__all__ = ["decode", "encode", "peek"]
