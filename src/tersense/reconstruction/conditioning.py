"""What a network is told of its measurements, window by window: how many there are, how exact.

Few measurements or large errors call for other repairs than many exact ones. What is known of a
window is one number each, log m_b/S² and log(1 + σ/unit); here these become maps of the size of
feature maps, and gates that open or close the channels of a network.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.sensing.operator import SensingOperator

COARSEST = 4  # pixels per side of the coarsest level's cells
_ERROR_UNIT = 0.05  # deviation of a measurement's error, in those of pixels, that begins to matter
_HIDDEN = 16

Gate = Callable[[Tensor], Tensor]


class Told(NamedTuple):
    """What a network knows of its measurements; numbers, or maps of them.

    Args:
        rate: log(m_b/S²), m_b the measurements of a window; () or (N, 1, H/2, W/2).
        noise: log(1 + σ/unit), mean over patterns, σ the deviation of their errors; None, or (N or
            1, 1, H/2, W/2) or with a single position.
        noise_at_pixels: The same as (N or 1, H, W).
        of_windows: Rate and noise as (N or 1, 2, h, w); None unless the network is universal.
        stride: S.
    """

    rate: Tensor
    noise: Tensor | None = None
    noise_at_pixels: Tensor | None = None
    of_windows: Tensor | None = None
    stride: int = 1


def tell(
    operator: SensingOperator,
    size: tuple[int, int],
    deviation: Tensor | None,
    counts: Tensor | None,
    universal: bool,
) -> Told:
    """Put together what a network is told; see `Reconstructor.forward` for the arguments."""
    stride, half = operator.geometry.stride, _half(size)
    if counts is None:
        rows = (operator.phi.abs().amax(dim=(1, 2)) > 0).sum()
        rate = (rows / stride**2).log().to(operator.phi.dtype)
        log_rate = rate.view(1, 1, 1)
    else:
        log_rate = (counts.clamp(min=0.5) / stride**2).log().to(operator.phi.dtype)
        rate = spread(log_rate, half, stride / 2)[:, None]
    if not universal:
        return Told(rate)
    if deviation is None:
        both = torch.stack([log_rate, torch.zeros_like(log_rate)], dim=1)
        return Told(rate, of_windows=both, stride=stride)
    noise = mean_noise(deviation, counts)
    both = torch.stack([log_rate + 0 * noise, noise + 0 * log_rate], dim=1)
    coarse = spread(noise, half, stride / 2)[:, None]
    return Told(rate, coarse, spread(noise, size, stride), both, stride)


def mean_noise(deviation: Tensor, counts: Tensor | None) -> Tensor:
    """Return the mean of log(1 + σ/unit) over the rows that were measured, (N, h, w).

    A mean of logarithms: a few patterns of large steps must not discredit all the others.
    """
    of_rows = (1 + deviation / _ERROR_UNIT).log()
    if counts is None or of_rows.shape[1] == 1:
        return of_rows.mean(dim=1)
    of_first = of_rows.cumsum(dim=1).expand(-1, -1, *counts.shape[-2:])
    first = counts.clamp(min=1)[:, None].long()
    of_first = of_first.expand(first.shape[0], -1, -1, -1)
    return (of_first.gather(1, first - 1) / first)[:, 0]


def _half(size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of the feature maps for an image of (H, W): whole coarse cells."""
    # Not −(−a // b): where a stands for any size, runtimes may divide toward zero.
    height, width = ((side + COARSEST - 1) // COARSEST * COARSEST // 2 for side in size)
    return height, width


def spread(of_windows: Tensor, size: tuple[int, ...], stride: float) -> Tensor:
    """Turn one value per window (…, h, w) into a map (…, H, W); a single one stays alone."""
    h, w = of_windows.shape[-2:]
    if (h, w) == (1, 1):
        return of_windows
    if stride % 1 == 0 and h * stride >= size[0] and w * stride >= size[1]:
        # Copies side by side: their gradient is a plain sum, which indices would scatter.
        side, around = int(stride), of_windows.shape[:-2]
        copies = of_windows[..., :, None, :, None].expand(*around, h, side, w, side)
        return copies.reshape(*around, h * side, w * side)[..., : size[0], : size[1]]
    down, across = (
        (torch.arange(side, device=of_windows.device) / stride).long().clamp(max=count - 1)
        for side, count in zip(size, (h, w), strict=True)
    )
    return of_windows[..., down[:, None], across]


def change_in_place(
    change: Callable[[Tensor, Tensor], Any], features: Tensor, of_windows: Tensor, stride: float
) -> Tensor:
    """Change features (N, C, H, W) by a value per window (…, h, w), without a map of the values.

    Args:
        change: `Tensor.add_` or another that writes to its first argument.
        features: Are changed, and returned.
        of_windows: Values that broadcast to (N, C, h, w).
        stride: Pixels of the features from one window to the next.
    """
    (h, w), side = of_windows.shape[-2:], int(stride)
    if features.shape[-2:] == (h * stride, w * stride):
        cells = features.view(*features.shape[:2], h, side, w, side)
        change(cells, of_windows[..., :, None, :, None])
    else:
        change(features, spread(of_windows, features.shape[-2:], stride))
    return features


class Gates(nn.Module):
    """Scale the channels of residual branches by what is known of the measurements.

    Args:
        channels: Feature maps.
        shrinks: For each gate, how many pixels per side its features stand for.
    """

    def __init__(self, channels: int, shrinks: tuple[int, ...]) -> None:
        super().__init__()
        self.shrinks = shrinks
        self.hidden = nn.Linear(2, _HIDDEN)
        self.scales = nn.ModuleList(nn.Linear(_HIDDEN, channels) for _ in shrinks)
        for weights in self.scales.parameters():
            nn.init.zeros_(weights)  # all open

    def forward(self, told: Told) -> list[Gate]:
        """Return what scales the features (N, channels, h, w) of each branch."""
        known: Any = told.of_windows
        hidden = F.silu(self.hidden(known.movedim(1, -1)))
        return [
            partial(_scaled, 1 + scale(hidden).movedim(-1, 1), told.stride / shrink)
            for scale, shrink in zip(self.scales, self.shrinks, strict=True)
        ]


def _scaled(of_windows: Tensor, stride: float, features: Tensor) -> Tensor:
    scale = of_windows.to(features.dtype)
    if torch.is_inference_mode_enabled():  # nobody needs what was there
        return change_in_place(Tensor.mul_, features, scale, stride)
    return features * spread(scale, features.shape[-2:], stride)


def all_open(features: Tensor) -> Tensor:
    """Be the gate of a network that is told nothing."""
    return features
