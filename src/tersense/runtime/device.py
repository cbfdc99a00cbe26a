"""Choose where to compute."""

import torch

from tersense.errors import TersenseError


def choose_device(wanted: str | torch.device) -> torch.device:
    """Return the device that `cpu`, `cuda` or `auto` (a GPU where there is one) means."""
    if isinstance(wanted, torch.device):
        return wanted
    if wanted not in ("auto", "cpu", "cuda"):
        raise TersenseError(f"no device is called {wanted!r}; use auto, cpu or cuda")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise TersenseError("torch sees no GPU here; use the device auto or cpu")
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)
