"""What the learned camera is compared with."""
