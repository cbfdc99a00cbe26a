"""From an image to its measurements: y = Φx."""
