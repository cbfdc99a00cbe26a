"""Where to compute, what that machine is called, and how its memory is used.

torch is imported when it is needed: the command line looks here before it knows its command.
"""

import contextlib
import ctypes
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tersense.errors import TersenseError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda"]
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as <malloc.h> of glibc numbers them
_KEPT = 1 << 30  # bytes


def choose_device(wanted: "str | torch.device") -> "torch.device":
    """Return the device that `cpu`, `cuda` or `auto` (a GPU where there is one) means."""
    import torch

    if isinstance(wanted, torch.device):
        return wanted
    if wanted not in ("auto", "cpu", "cuda"):
        raise TersenseError(f"device must be auto, cpu or cuda, got {wanted!r}")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise TersenseError("torch sees no GPU here; use the device auto or cpu")
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def is_fast_at_bfloat16(device: "torch.device") -> bool:
    """Tell whether the processor has instructions for it; without, it is slower than float32."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class _Precise:
    """Who computes in full precision now, and what the switches were before."""

    def __init__(self) -> None:
        self.lock, self.threads, self.before = threading.Lock(), 0, (False, False)


_precise = _Precise()


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Let no GPU multiply in TF32, whose 11 bits drown small differences of large sums."""
    import torch

    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    # The switches are those of the process: the first thread turns them, the last one back.
    with _precise.lock:
        if not _precise.threads:
            _precise.before = convolutions.allow_tf32, products.allow_tf32
            convolutions.allow_tf32 = products.allow_tf32 = False
        _precise.threads += 1
    try:
        yield
    finally:
        with _precise.lock:
            _precise.threads -= 1
            if not _precise.threads:
                convolutions.allow_tf32, products.allow_tf32 = _precise.before


def device_name(device: "torch.device") -> str:
    """Name the processor that a device is."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """Name the processor of this machine."""
    with contextlib.suppress(OSError, IndexError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return names[0]
    return platform.processor() or platform.machine()


def keep_freed_memory() -> None:
    """Let this process keep up to a gigabyte of freed memory; for programs, not for libraries.

    Left alone, the C library gives large blocks back to the system when they are freed, and every
    new feature map is made of new pages: a million of them for an image of one megapixel, a fifth
    of the time of its reconstruction.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        for option in _TRIM_THRESHOLD, _MMAP_THRESHOLD:
            ctypes.CDLL(None).mallopt(option, _KEPT)
