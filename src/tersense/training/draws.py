"""What a universal network is trained for: each crop with other counts per window and other errors.

A sensor that decides by itself measures flat windows less often than textured ones, and its values
come with noise or few bits. The network meets all of this at random, and is told.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.reconstruction.base import Normalization
from tersense.sensing.operator import SensingOperator
from tersense.training.config import ReadoutConfig

_SPREAD_SHARE = 0.65  # of the crops, those whose windows differ
_RANDOM_SPREAD = 0.8  # largest deviation of log m_b that has no reason
_VARIANCE_SLOPE = 0.9  # largest slope of log m_b against that of a window's variance
_LEAST_VARIANCE = 1e-3  # of a window; flatter ones count as this flat
_NOISE, _ONE_STEP, _OWN_STEPS, _EXACT = range(4)  # kinds of errors
_FEWEST_BITS, _MOST_BITS = 3.5, 10.5


def draw_counts(x: Tensor, stride: int, rows: int, lowest: float, skew: float = 1.0) -> Tensor:
    """Draw how many measurements each window of some crops takes.

    Every crop has a rate of its own, log-uniform if not skewed. In some, windows spread around it:
    at random, and with the contrast inside the window, as a sensible allocation does.

    Args:
        x: (N, H, W) normalized crops.
        stride: S; a window has the contrast of its central S×S cell.
        rows: m, the most that a window can take.
        lowest: The least, as a share of m.
        skew: Above 1, high rates are drawn more often; see `TrainConfig`.

    Returns:
        (N, h, w) integers.
    """
    h, w = -(-x.shape[1] // stride), -(-x.shape[2] // stride)
    height, width = x.shape[1] // stride * stride, x.shape[2] // stride * stride
    cells = F.pixel_unshuffle(x[:, None, :height, :width], stride)  # whole cells only
    variance = cells.var(dim=1, keepdim=True)
    contrast = F.interpolate(variance, (h, w)).clamp(min=_LEAST_VARIANCE).log()[:, 0]
    contrast = contrast - contrast.mean(dim=(1, 2), keepdim=True)

    def uniform(highest: float = 1.0) -> Tensor:
        return torch.rand(len(x), 1, 1, device=x.device) * highest

    spread = (uniform() < _SPREAD_SHARE).to(x.dtype)
    offset = torch.randn_like(contrast) * uniform(_RANDOM_SPREAD)
    offset = offset + contrast * uniform(_VARIANCE_SLOPE)
    log_share = math.log(lowest) * uniform() ** skew + spread * offset
    return (log_share.exp() * rows).ceil().clamp(max(1.0, lowest * rows), rows).long()


def draw_readout(
    x: Tensor,
    y: Tensor,
    operator: SensingOperator,
    normalization: Normalization,
    settings: ReadoutConfig,
) -> tuple[Tensor, Tensor]:
    """Read the measurements y (N, m, h, w) of crops x (N, H, W) out with errors, as settings say.

    Returns:
        The values that are read, and the deviation of their errors, which broadcasts to them; both
        normalized.
    """
    size = x.shape[-2], x.shape[-1]
    ones = operator.sense_ones(size)
    if not settings.brightest:
        return draw_errors(y, normalization, ones, settings)
    mirrors = SensingOperator(operator.phi.abs(), operator.geometry.stride)
    lit = mirrors.sense_ones(size)
    light = mirrors.forward(x) * normalization.std + normalization.mean * lit
    return draw_exposures(y, normalization, ones, light, lit, settings)


def draw_errors(
    y: Tensor, normalization: Normalization, ones: Tensor, settings: ReadoutConfig
) -> tuple[Tensor, Tensor]:
    """Read measurements out with errors, other ones for every crop.

    Args:
        y: (N, m, h, w) normalized.
        normalization: Of y.
        ones: Φ⋆1 (m, h, w).
        settings: How many and how large.

    Returns:
        The values that are read, and the deviation of their errors (N, m, 1, 1), both normalized.
    """

    def uniform() -> Tensor:
        return torch.rand(len(y), 1, 1, 1, device=y.device)

    raw = y * normalization.std + normalization.mean * ones
    low, high = math.log(settings.lowest), math.log(settings.highest)
    of_crop = (low + (high - low) * uniform()).exp()
    kind = torch.where(uniform() < settings.share, (3 * uniform()).long(), _EXACT)
    # Each pattern ranged to its sums, as `Readout.ranged` does; large images have more of them.
    highest, lowest = raw.amax(dim=(-2, -1), keepdim=True), raw.amin(dim=(-2, -1), keepdim=True)
    reach = (highest - lowest) / 2 * 2 ** uniform()
    bits = _FEWEST_BITS + (_MOST_BITS - _FEWEST_BITS) * uniform()
    own_steps = (reach / 2 ** (bits - 1)).clamp(min=1)
    steps = torch.where(kind == _OWN_STEPS, own_steps, of_crop * math.sqrt(12))
    deviation = torch.where(kind == _EXACT, 0.0, steps / math.sqrt(12))
    rounding = (raw / steps).round() * steps - raw
    error = torch.where(kind == _NOISE, torch.randn_like(y) * deviation, rounding)
    error = torch.where(kind == _EXACT, 0.0, error)
    # Rounding has no slope; to Φ, the error is one that it cannot change.
    return y + error.detach() / normalization.std, deviation / normalization.std


def draw_exposures(
    y: Tensor,
    normalization: Normalization,
    ones: Tensor,
    light: Tensor,
    lit: Tensor,
    settings: ReadoutConfig,
) -> tuple[Tensor, Tensor]:
    """Count photons: those of the +1 of a pattern, then those of its −1; other light in every crop.

    A count is a poor estimate of its own variance: what is low by chance would be trusted most. The
    network is told what the mirrors that are on and the mean light of the window predict.

    Args:
        y: (N, m, h, w) normalized.
        normalization: Of y.
        ones: Φ⋆1 (m, h, w).
        light: |Φ|x (N, m, h, w), in pixel values.
        lit: |Φ|⋆1 (m, h, w), the mirrors that are on in either exposure.
        settings: How much light, and how much noise besides.

    Returns:
        As `draw_errors`; the deviation is (N, m, h, w).
    """

    def log_uniform(lowest: float, highest: float) -> Tensor:
        exponent = torch.rand(len(y), 1, 1, 1, device=y.device)
        return lowest * (highest / lowest) ** exponent

    def chosen(share: float) -> Tensor:
        return torch.rand(len(y), 1, 1, 1, device=y.device) < share

    raw = (y * normalization.std + normalization.mean * ones).detach()
    light, photons = light.detach(), log_uniform(settings.dimmest, settings.brightest)
    positive = torch.poisson(((light + raw) / 2).clamp(min=0) * photons)
    negative = torch.poisson(((light - raw) / 2).clamp(min=0) * photons)
    noise = torch.where(chosen(0.5), log_uniform(settings.lowest, settings.highest), 0.0)
    read = (positive - negative) / photons + torch.randn_like(raw) * noise
    of_mirror = (positive + negative).sum(dim=1, keepdim=True) / lit.sum(dim=0).clamp(min=1)
    variance = (of_mirror * lit + 1) / photons**2 + noise**2
    exposed = chosen(settings.share)
    error = torch.where(exposed, read - raw, 0.0)
    deviation = torch.where(exposed, variance.sqrt(), 0.0)
    return y + error / normalization.std, deviation / normalization.std
