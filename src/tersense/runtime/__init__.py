"""The machine: devices, memory, progress, several processes (`distributed`)."""

from tersense.runtime.device import choose_device, keep_freed_memory
from tersense.runtime.progress import Quiet, Track, Watcher, ahead, quietly

__all__ = ["Quiet", "Track", "Watcher", "ahead", "choose_device", "keep_freed_memory", "quietly"]
