"""Read and write files: images, figures, arrays, settings."""
