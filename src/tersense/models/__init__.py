"""Trained cameras: sense, reconstruct, load, save."""
