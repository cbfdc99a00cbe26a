"""From measurements back to the image."""
