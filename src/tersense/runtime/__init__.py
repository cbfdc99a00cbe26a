"""What the machine does: devices, memory, progress, several processes."""
