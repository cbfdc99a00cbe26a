"""What a camera read out, and the files that keep it."""
