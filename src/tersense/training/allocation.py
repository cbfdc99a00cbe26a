"""Train what adaptive sensing decides by, for a network that stays as it is.

    crops ──Φ──▶ y ──network at 13 counts, and at uneven ones──▶ errors of every window
                                                            └──▶ evidence of every round
    evidence ──predictor──▶ errors, as near as possible

The network runs first, many times over each crop; the small predictor then learns from what was
noted. `gather` also notes y itself, from which an integer decision is fitted.
"""

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tersense.models.imager import Imager
from tersense.reconstruction.allocation import ErrorPredictor, Evidence
from tersense.reconstruction.allocation.predictor import (
    FIRST_LOOK,
    PredictorOptions,
    cell_means,
    pool_features,
    predictor_for,
)
from tersense.runtime.device import full_precision, is_fast_at_bfloat16
from tersense.runtime.progress import Quiet, Watcher
from tersense.sensing.exact import sense_exactly
from tersense.training.config import AllocationConfig, ReadoutConfig
from tersense.training.crops import CropSampler, PackedImages
from tersense.training.cuda_graph import fastest_convolutions
from tersense.training.decision import fit_decision
from tersense.training.draws import draw_readout
from tersense.training.losses import mean_of_logs

_LEAST_ERROR = 1e-6  # squared, in deviations of the pixels: far below rounding to 8 bits
_FIRST_ROUNDS = 2  # of each crop, uniform counts that uneven rounds follow
_ROUNDS = 2  # that follow
_BATCH, _RATE, _DECAY = 64, 2e-3, 0.1


@dataclass
class Cases:
    """What was noted of n crops with h×w windows, s times for each.

    Args:
        inputs: (n, s, I, h, w) half precision, what the predictor sees.
        errors: (n, K, h, w), logarithms of the squared errors at uniform counts, the levels.
        y: (n, m, h, w) integers, the exact measurements; of the first few crops only.
    """

    inputs: Tensor
    errors: Tensor
    y: Tensor


def train_allocation(
    imager: Imager,
    images: PackedImages,
    settings: AllocationConfig,
    readout: ReadoutConfig | None = None,
    seed: int = 0,
    watcher: Watcher | None = None,
    balanced: bool = False,
) -> Cases:
    """Give a camera what adaptive sensing decides by, trained on its errors.

    That is a predictor and the integer decision of a sensor. The network is not changed.

    Args:
        imager: A camera with a universal network.
        images: To crop from.
        settings: How long, and how large.
        readout: Errors of measurements, as the network was trained with.
        seed: Of everything random.
        watcher: Who is told how it goes.
        balanced: As in `CropSampler`.

    Returns:
        What it was trained on.
    """
    watcher = watcher or Quiet()
    torch.manual_seed(seed)
    predictor = predictor_for(imager.reconstructor, PredictorOptions(settings.channels))
    began = time.perf_counter()
    cases = gather(imager, predictor.levels, images, settings, readout, seed, watcher, balanced)
    left = settings.seconds - (time.perf_counter() - began) if settings.seconds else math.inf
    fit(predictor.to(imager.device), cases, settings.steps, left, watcher)
    imager.camera.predictor = predictor.eval().requires_grad_(False)
    if len(cases.y):
        y, errors = cases.y.numpy(), cases.errors[: len(cases.y)].float().cpu().numpy()
        imager.camera.decision = fit_decision(
            imager.phi, predictor.levels, y, errors, settings.steps
        )
    return cases


def gather(
    imager: Imager,
    levels: tuple[int, ...],
    images: PackedImages,
    settings: AllocationConfig,
    readout: ReadoutConfig | None = None,
    seed: int = 0,
    watcher: Watcher | None = None,
    balanced: bool = False,
) -> Cases:
    """Reconstruct crops with many counts and note the errors; see `Cases`.

    Args:
        imager: The camera.
        levels: K counts, those of its predictor.
        images: To crop from.
        settings: How many crops at most, how long at most.
        readout: Errors of measurements; none where not given.
        seed: Of everything random.
        watcher: Who is told how it goes.
        balanced: As in `CropSampler`.
    """
    sampler = CropSampler(
        images, settings.crop, settings.crops, augment=True, seed=seed, balanced=balanced
    )
    torch.manual_seed(seed)
    limit = settings.seconds * settings.gathering or math.inf
    found: list[tuple[Tensor, Tensor]] = []
    measured: list[Tensor] = []
    began, done = time.perf_counter(), 0
    with _frozen(imager):
        for locations in torch.split(sampler.epoch(0), settings.batch):
            pixels = images.crops(locations, settings.crop).to(imager.device).float()
            exact = done < settings.sensor_crops  # integers, as a sensor has them
            found.append(examine(imager, levels, pixels, None if exact else readout))
            if exact:
                measured.append(sense_exactly(pixels, imager.operator).cpu())
            done += len(pixels)
            error = float(found[-1][1].mean())  # also waits for the device: the time limit is real
            if watcher:
                watcher.progress(done, len(sampler), f"mean log error {error:.2f}")
            if time.perf_counter() - began > limit:
                break
    inputs, errors = (torch.cat(parts) for parts in zip(*found, strict=True))
    nothing = torch.empty(0, imager.rows, *errors.shape[-2:], dtype=torch.int32)
    return Cases(inputs, errors, torch.cat([nothing, *measured]))


def examine(
    imager: Imager, levels: tuple[int, ...], pixels: Tensor, readout: ReadoutConfig | None
) -> tuple[Tensor, Tensor]:
    """Return inputs (N, s, I, h, w) and log errors (N, K, h, w) of crops (N, H, W)."""
    camera = imager.camera
    size, stride = (pixels.shape[-2], pixels.shape[-1]), imager.geometry.stride
    x = camera.normalization.pixels(pixels)
    y, deviation = imager.operator.forward(x), None
    if readout is not None and readout.share:
        y, deviation = draw_readout(x, y, imager.operator, camera.normalization, readout)
    low, high = (camera.normalization.pixels(pixels.new_tensor(v)) for v in (0.0, 255.0))

    def look(evidence: Evidence, counts: Tensor) -> Tensor:
        """Add a round to the evidence; return the log errors it leaves."""
        image, features = camera.examine_part(y, size, deviation, counts)
        evidence.add(y, counts, image, pool_features(features, stride), deviation)
        error = cell_means((image.clamp(low, high) - x).square(), stride)
        return (error + _LEAST_ERROR).log()

    grid = y.shape[-2:]
    uniform = _draw_levels(levels, len(x), x.device)
    evidence = Evidence(imager.operator, _whitening(imager), levels)
    part = max(1, int(FIRST_LOOK * levels[0]))
    look(
        evidence, uniform.new_full((len(x), *grid), part)
    )  # predicts the rows up to the first level
    so_far, inputs, errors = [], [], []
    for count in uniform.unbind(1):
        errors.append(look(evidence, count[:, None, None].expand(-1, *grid)))
        so_far.append(copy.copy(evidence))
        inputs.append(evidence.inputs.half())
    for _ in range(_FIRST_ROUNDS):
        first = int(torch.randint(max(1, len(levels) * 3 // 4), ()))
        evidence, error = copy.copy(so_far[first]), errors[first]
        for _ in range(_ROUNDS):
            assert evidence.counts is not None
            error = look(evidence, _draw_growth(evidence.counts, error, imager.rows))
            inputs.append(evidence.inputs.half())
    curves = _at_levels(torch.stack(errors, dim=1), uniform.log(), x.new_tensor(levels).log())
    return torch.stack(inputs, dim=1), curves


def _whitening(imager: Imager) -> Tensor:
    factor = imager.reconstructor.whitening(imager.operator)
    assert factor is not None  # every network for any count has one
    return factor


def _draw_levels(levels: tuple[int, ...], crops: int, device: torch.device) -> Tensor:
    """Return counts (N, K) around the levels, so that the predictor meets those between too."""
    wanted = torch.tensor(levels, device=device).log()
    gap = (wanted[-1] - wanted[0]) / max(1, len(levels) - 1)
    shift = (torch.rand(crops, len(levels), device=device) - 0.5) * gap
    shift[:, 0] = shift[:, -1] = 0
    return (wanted + shift).exp().round().long().clamp(levels[0], levels[-1]).cummax(dim=1).values


def _draw_growth(counts: Tensor, log_errors: Tensor, rows: int) -> Tensor:
    """Draw what windows take next: more where the error is large, as a sensible allocation does."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(counts), 1, 1, device=counts.device)

    need = log_errors - log_errors.mean(dim=(1, 2), keepdim=True)
    growth = uniform(0, 1) + uniform(0.2, 0.8) * need
    growth = growth + uniform(0, 0.5) * torch.randn_like(need)
    return counts + (counts * (growth.clamp(0, 2.5).exp() - 1)).long().clamp(max=rows - counts)


def _at_levels(curves: Tensor, given: Tensor, wanted: Tensor) -> Tensor:
    """Interpolate curves (N, K, h, w), known at `given` (N, K), at the levels `wanted` (K,)."""
    after = torch.searchsorted(given, wanted.expand_as(given).contiguous())
    after = after.clamp(1 if len(wanted) > 1 else 0, given.shape[1] - 1)
    before = (after - 1).clamp(min=0)
    left, right = given.gather(1, before), given.gather(1, after)
    share = ((wanted - left) / (right - left).clamp(min=1e-6)).clamp(0, 1)[..., None, None]

    def pick(index: Tensor) -> Tensor:
        return curves.gather(1, index[..., None, None].expand_as(curves))

    return pick(before).lerp(pick(after), share)


def fit(
    predictor: ErrorPredictor,
    cases: Cases,
    steps: int,
    seconds: float = math.inf,
    watcher: Watcher | None = None,
) -> None:
    """Train a predictor on what was noted.

    Args:
        predictor: Is trained, where it is.
        cases: Inputs and errors.
        steps: At most.
        seconds: At most.
        watcher: Who is told how it goes.
    """
    device = predictor.mean.device
    inputs, errors = cases.inputs.flatten(0, 1), cases.errors.float()
    times = cases.inputs.shape[1]
    some = inputs[:: max(1, len(inputs) // 2048)].float()
    predictor.expect(some, errors)
    optimizer = torch.optim.AdamW(predictor.parameters(), lr=_RATE, weight_decay=_DECAY)
    predictor.train()
    began = time.perf_counter()
    for step in range(steps):
        spent = time.perf_counter() - began
        if spent >= seconds:
            break
        done = max(step / steps, spent / seconds)
        optimizer.param_groups[0]["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * done))
        chosen = torch.randint(len(inputs), (_BATCH,), device=inputs.device)
        predicted = predictor(inputs[chosen].to(device).float())
        missed = errors[chosen // times].to(device) - predicted
        loss = mean_of_logs(missed)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (step + 1) % 50 == 0:
            reached = loss.item()
            if watcher:
                watcher.progress(step + 1, steps, f"loss {reached:.3f}")


@contextmanager
def _frozen(imager: Imager) -> Iterator[None]:
    """Run the network as it is, in half precision where that is fast, but for what is measured."""
    precision = imager.precision
    if is_fast_at_bfloat16(imager.device):
        imager.precision = "bfloat16"
    try:
        with imager.camera.inference(), fastest_convolutions(), full_precision():
            yield
    finally:
        imager.precision = precision
