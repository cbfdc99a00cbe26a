"""Learn a measurement matrix and its reconstructor together."""
