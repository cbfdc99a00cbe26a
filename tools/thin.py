"""Make a thinner network from a trained one, to be trained further: fewer channels, none dead.

    python tools/thin.py large PHOTOGRAPHS -o thin.safetensors --channels 80
    tersense train configs/lapped.toml --set train.start=thin.safetensors …

A channel that the others nearly tell is worth little. Wherever channels are read, their second
moments over crops of photographs say how much of each the others leave untold. Channels go one by
one, each time the one of which its readers lose least; they then read linear estimates of what is
gone. Hidden channels that are zero everywhere get no gradient; they begin anew, unheard at first.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.io.images import find_images, read_gray
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.models.zoo import load
from tersense.reconstruction.unrolled import Phase, Residual, UnrolledReconstructor

CROP = 128
RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)  # of the crops in turn, as far as the camera has them
_BATCH = 8
_RIDGE = 1e-4  # of the mean second moment
Moments = dict[str, Tensor]  # by layer: (channels, channels), sums over everything it reads
Readers = list[tuple[Tensor, Tensor]]  # moments of what a layer reads, and its weights


def main() -> None:
    """Write the thinner model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a universal one")
    parser.add_argument("photographs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--channels", type=int, help="as many as the model has if not given")
    parser.add_argument("--crops", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        imager = load(options.model)
        crops = draw_crops(options.photographs, options.crops, options.seed)
    except TersenseError as error:
        parser.error(str(error))
    own = imager.reconstructor.options.channels
    channels = own if options.channels is None else options.channels
    if not 1 <= channels <= own:
        parser.error(f"--channels must be from 1 to {own}, those of {options.model}")
    if not len(crops):
        parser.error(f"{options.photographs} has no image of at least {CROP}×{CROP} pixels")
    if channels < own:
        thin_to(imager, crops, channels)
    print(f"{revive(imager, crops)} dead channels begin anew")
    imager.name = options.out.stem
    imager.about = {"thinned": {"from": options.model, "channels": channels}}
    write_model(options.out, imager)


def draw_crops(folder: Path, number: int, seed: int) -> Tensor:
    """Return crops (N, CROP, CROP) uint8, each of another image, as far as there are any."""
    rng, crops = np.random.default_rng(seed), []
    for path in rng.permutation(find_images(folder)):
        if len(crops) == number:
            break
        image = read_gray(path)
        if min(image.shape) >= CROP:
            down, across = (rng.integers(side - CROP + 1) for side in image.shape)
            crops.append(image[down : down + CROP, across : across + CROP])
    return torch.from_numpy(np.array(crops, np.uint8))


@torch.no_grad()
def moments_of(imager: Imager, crops: Tensor) -> Moments:
    """Reconstruct crops at several rates; return the moments of the channels each layer reads."""
    network, sums = imager.reconstructor, Moments()
    hooks = list(_listen(network.phases, sums))
    for place, some in enumerate(crops.split(_BATCH)):
        y = imager.operator.forward(imager.camera.normalization.pixels(some.float()))
        rows = round(RATES[place % len(RATES)] * imager.patterns.stride**2)
        counts = torch.full((len(some), *y.shape[-2:]), min(rows, imager.rows))
        network(y, imager.operator, tuple(some.shape[-2:]), None, counts)
    for hook in hooks:
        hook.remove()
    return sums


def _listen(phases: Iterable[Phase], sums: Moments) -> Iterable[Any]:
    """Add to `sums` what each layer of each phase reads, and the memory that each phase does."""

    def adding_to(name: str, argument: int) -> Any:
        def add(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            channels = arguments[argument].movedim(1, -1).flatten(0, -2)
            sums[name] = sums.get(name, 0) + (channels.T @ channels).double()

        return add

    for number, phase in enumerate(phases):
        if number:
            yield phase.register_forward_pre_hook(adding_to(f"{number}.memory", 2))
        for name, layer in phase.named_modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and name != "entry":
                yield layer.register_forward_pre_hook(adding_to(f"{number}.{name}", 0))


@torch.no_grad()
def thin_to(imager: Imager, crops: Tensor, channels: int) -> None:
    """Keep so many channels of each layer; what adaptive sensing decides by is gone."""
    network, sums = imager.reconstructor, moments_of(imager, crops)
    options = replace(network.options, channels=channels)
    thin = UnrolledReconstructor(imager.operator.geometry, len(imager.phi), options)
    memory = None
    for number, (phase, ours) in enumerate(zip(network.phases, thin.phases, strict=True)):
        own = f"{number}."
        read = {name.removeprefix(own): m for name, m in sums.items() if name.startswith(own)}
        next_reader: Readers = []
        if number + 1 < len(network.phases):
            entry = network.phases[number + 1].entry.weight[:, 8:]
            next_reader = [(sums[f"{number + 1}.memory"], entry)]
        memory = _thin_phase(phase, ours, read, memory, next_reader)
    if network.closing is not None:
        thin.closing.load_state_dict(network.closing.state_dict())
    imager.camera.reconstructor, imager.camera.predictor, imager.camera.decision = thin, None, None


def _thin_phase(
    phase: Phase, ours: Phase, sums: Moments, memory: Tensor | None, next_reader: Readers
) -> Tensor | None:
    """Fill a thinner phase.

    Args:
        phase: The trained one.
        ours: Is filled.
        sums: What its layers read.
        memory: The estimate of the memory that it reads, from the channels that are left.
        next_reader: Who reads the memory that it leaves.

    Returns:
        The estimate of that memory.
    """
    channels, coarse = len(ours.entry.weight), phase.coarse
    fine_readers = [(sums[name], phase.get_submodule(name).weight)
                    for name in ("before", "down", "after.first", "exit")]  # fmt: skip
    fine = choose(fine_readers + next_reader, channels)
    coarse_readers = [(sums[f"coarse.{n}.first"], coarse[n].first.weight) for n in (0, 1)]
    coarser = choose([*coarse_readers, (sums["up"], phase.up.weight.transpose(0, 1))], channels)
    entry = phase.entry.weight[fine]
    if memory is not None:
        entry = torch.cat([entry[:, :8], through(entry[:, 8:], memory)], dim=1)
    _set(ours.entry, entry, phase.entry.bias[fine])
    for part in ("by_rate", "by_noise"):
        getattr(ours, part).copy_(getattr(phase, part)[fine])
    for part in ("step", "step_noise", "corrections"):
        getattr(ours, part).copy_(getattr(phase, part))
    for name, kept, outputs in (
        ("before", fine, fine), ("down", fine, coarser), ("exit", fine, slice(None)),
    ):  # fmt: skip
        layer = phase.get_submodule(name)
        _thin(ours.get_submodule(name), layer, estimate(sums[name], kept), outputs)
    for name, kept in (("coarse.0", coarser), ("coarse.1", coarser), ("after", fine)):
        _thin_residual(ours.get_submodule(name), phase.get_submodule(name), sums, name, kept)
    up = through(phase.up.weight.transpose(0, 1)[fine], estimate(sums["up"], coarser))
    _set(ours.up, up.transpose(0, 1), phase.up.bias[fine])
    ours.gates.hidden.load_state_dict(phase.gates.hidden.state_dict())
    kept_by_gate = (fine, coarser, coarser, fine)
    for gate, trained, kept in zip(
        ours.gates.scales, phase.gates.scales, kept_by_gate, strict=True
    ):
        _set(gate, trained.weight[kept], trained.bias[kept])
    return estimate(next_reader[0][0], fine) if next_reader else None


def _thin_residual(
    ours: Residual, trained: Residual, sums: Moments, name: str, kept: Tensor
) -> None:
    hidden = choose([(sums[f"{name}.second"], trained.second.weight)], len(ours.first.weight))
    _thin(ours.first, trained.first, estimate(sums[f"{name}.first"], kept), hidden)
    _thin(ours.second, trained.second, estimate(sums[f"{name}.second"], hidden), kept)


def _thin(ours: nn.Conv2d, trained: nn.Conv2d, inputs: Tensor, outputs: Tensor | slice) -> None:
    _set(ours, through(trained.weight[outputs], inputs), trained.bias[outputs])


def _set(layer: Any, weight: Tensor, bias: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


def through(weight: Tensor, inputs: Tensor) -> Tensor:
    """Let a layer (outputs, inputs, …) read estimates (inputs, kept) of its inputs."""
    return torch.einsum("oi...,ik->ok...", weight, inputs.to(weight))


def choose(readers: Readers, number: int) -> Tensor:
    """Return which channels stay, in order: those of which readers would lose most."""
    precisions, worths = [], []
    for moments, weight in readers:
        precisions.append(torch.linalg.inv(_regular(moments)))
        worth = weight.double().square().movedim(1, 0).flatten(1).sum(1)
        worths.append(worth / (worth * moments.diagonal()).sum().clamp(min=1e-9))
    left = torch.ones(len(worths[0]), dtype=torch.bool)
    while left.sum() > number:
        loss = sum(w / p.diagonal() for w, p in zip(worths, precisions, strict=True))
        goes = int(torch.where(left, loss, torch.inf).argmin())
        left[goes] = False
        for precision in precisions:
            precision -= torch.outer(precision[:, goes], precision[goes]) / precision[goes, goes]
            precision[goes, goes] = 1
    return left.nonzero()[:, 0]


def estimate(moments: Tensor, kept: Tensor) -> Tensor:
    """Return the linear estimate (channels, kept) of all channels from those that are kept."""
    moments = _regular(moments)
    return torch.linalg.solve(moments[kept][:, kept], moments[kept]).T


def _regular(moments: Tensor) -> Tensor:
    ridge = _RIDGE * moments.diagonal().mean().clamp(min=1)
    return moments + ridge * torch.eye(len(moments), dtype=torch.double)


@torch.no_grad()
def revive(imager: Imager, crops: Tensor) -> int:
    """Begin hidden channels anew that are zero everywhere; say how many there were."""
    found = 0
    for name, sums in moments_of(imager, crops).items():
        if name.endswith(".second"):
            block = imager.reconstructor.phases.get_submodule(name.removesuffix(".second"))
            dead = sums.diagonal() == 0
            fresh = nn.Conv2d(block.first.in_channels, block.first.out_channels, 3)
            block.first.weight[dead] = fresh.weight[dead]
            block.first.bias[dead] = 0
            block.second.weight[:, dead] = 0
            found += int(dead.sum())
    return found


if __name__ == "__main__":
    main()
