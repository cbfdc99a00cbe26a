"""Make a thinner network from a trained one, to be trained further: fewer channels, none dead.

    python tools/thin.py large PHOTOGRAPHS -o thin.safetensors --channels 80
    tersense train configs/lapped.toml --set train.start=thin.safetensors …

A channel that the others nearly tell is worth little. At each place where channels are read, their
second moments over crops of photographs say how much of each the others leave untold; those of
which least is lost go one by one, weighted by who reads them. Readers then take a linear estimate
of what is gone from what is left. Hidden channels that are zero everywhere, to which no gradient
comes, begin anew, unheard at first.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tersense.io.images import read_image
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.models.zoo import load
from tersense.reconstruction.unrolled import Phase, UnrolledReconstructor

CROP = 128
RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
_RIDGE = 1e-4  # of the mean second moment


def main() -> None:
    """Write the thinner model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("photographs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--channels", type=int, help="those of the model where not given")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="phases to leave out")
    parser.add_argument("--crops", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    imager = load(options.model)
    crops = draw_crops(options.photographs, options.crops, options.seed)
    without_phases(imager, options.without)
    if options.channels:
        thin_to(imager, crops, options.channels)
    print(f"{revive(imager, crops)} dead channels begin anew")
    imager.name = options.out.stem
    write_model(options.out, imager)


def draw_crops(folder: Path, number: int, seed: int) -> Tensor:
    """Return crops (N, CROP, CROP) uint8 of as many images."""
    rng, crops = np.random.default_rng(seed), []
    for path in rng.permutation(sorted(p for p in folder.rglob("*") if p.is_file())):
        image = read_image(path)
        image = image if image.ndim == 2 else image.mean(axis=2).astype(np.uint8)
        if min(image.shape) >= CROP:
            down, across = (rng.integers(side - CROP + 1) for side in image.shape)
            crops.append(image[down : down + CROP, across : across + CROP])
        if len(crops) == number:
            break
    return torch.from_numpy(np.stack(crops))


def without_phases(imager: Imager, numbers: list[int]) -> None:
    """Leave phases out: the next ones read the memory of those before."""
    network = imager.reconstructor
    kept = [phase for number, phase in enumerate(network.phases) if number not in numbers]
    if 0 in numbers:  # the first one has no memory to read
        kept[0].entry.weight = nn.Parameter(kept[0].entry.weight[:, :8].detach().clone())
    network.phases = nn.ModuleList(kept)
    network.options = replace(network.options, phases=len(kept))


class Moments:
    """Second moments of the channels that each layer reads, by name."""

    def __init__(self, phases: Iterable[Phase]) -> None:
        self.sums: dict[str, Tensor] = {}
        self.hooks: list[Any] = []
        for number, phase in enumerate(phases):
            if number:
                self._listen(phase, f"{number}.memory", 2)
            for name, layer in phase.named_modules():
                if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and name != "entry":
                    self._listen(layer, f"{number}.{name}", 0)

    def _listen(self, module: nn.Module, name: str, place: int) -> None:
        def add(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            channels = arguments[place].movedim(1, -1).flatten(0, -2)
            self.sums[name] = self.sums.get(name, 0) + (channels.T @ channels).double()

        self.hooks.append(module.register_forward_pre_hook(add))


def moments_of(imager: Imager, crops: Tensor) -> dict[str, Tensor]:
    """Reconstruct crops at several rates; return the moments of what each layer reads."""
    network, moments = imager.reconstructor, Moments(imager.reconstructor.phases)
    for place, some in enumerate(crops.split(8)):
        count = round(RATES[place % len(RATES)] * imager.patterns.stride**2)
        y = imager.operator.forward(imager.camera.normalization.pixels(some.float()))
        counts = torch.full((len(some), *y.shape[-2:]), count)
        network(y, imager.operator, (CROP, CROP), None, counts)
    for hook in moments.hooks:
        hook.remove()
    return moments.sums


@torch.no_grad()
def thin_to(imager: Imager, crops: Tensor, channels: int) -> None:
    """Keep so many channels of each layer."""
    network, sums = imager.reconstructor, moments_of(imager, crops)
    thin = UnrolledReconstructor(
        imager.operator.geometry, len(imager.phi), replace(network.options, channels=channels)
    )
    memory = None
    for number, phase in enumerate(network.phases):
        here = {name.removeprefix(f"{number}."): of for name, of in sums.items()}
        after = None
        if number + 1 < len(network.phases):
            after = sums[f"{number + 1}.memory"], network.phases[number + 1].entry.weight[:, 8:]
        memory = _thin_phase(phase, thin.phases[number], here, after, memory, channels)
    if network.closing is not None:
        thin.closing.load_state_dict(network.closing.state_dict())
    imager.camera.reconstructor, imager.camera.predictor, imager.camera.decision = thin, None, None


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


def _thin_phase(phase, ours, sums, after, memory, channels):  # type: ignore[no-untyped-def]
    coarse = phase.coarse
    stream_readers = [
        (sums["before"], phase.before.weight), (sums["down"], phase.down.weight),
        (sums["after.first"], phase.after.first.weight), (sums["exit"], phase.exit.weight),
    ]  # fmt: skip
    if after is not None:
        stream_readers.append(after)
    stream = choose(stream_readers, channels)
    coarser = choose(
        [(sums["coarse.0.first"], coarse[0].first.weight),
         (sums["coarse.1.first"], coarse[1].first.weight),
         (sums["up"], phase.up.weight.transpose(0, 1))], channels,
    )  # fmt: skip
    entry = phase.entry.weight[stream]
    if memory is not None:
        entry = torch.cat([entry[:, :8], through(entry[:, 8:], memory)], dim=1)
    _set(ours.entry, entry, phase.entry.bias[stream])
    for part in ("by_rate", "by_noise"):
        getattr(ours, part).copy_(getattr(phase, part)[stream])
    for part in ("step", "step_noise", "corrections"):
        getattr(ours, part).copy_(getattr(phase, part))
    read = lambda name, kept: estimate(sums[name], kept)  # noqa: E731
    _thin(ours.before, phase.before, read("before", stream), stream)
    _thin(ours.down, phase.down, read("down", stream), coarser)
    for place in (0, 1):
        name = f"coarse.{place}"
        _thin_residual(ours.coarse[place], coarse[place], sums, name, coarser, channels)
    up = through(phase.up.weight.transpose(0, 1)[stream], read("up", coarser)).transpose(0, 1)
    _set(ours.up, up, phase.up.bias[stream])
    _thin_residual(ours.after, phase.after, sums, "after", stream, channels)
    _thin(ours.exit, phase.exit, read("exit", stream), slice(None))
    ours.gates.hidden.load_state_dict(phase.gates.hidden.state_dict())
    for scale, theirs, kept in zip(
        ours.gates.scales, phase.gates.scales, (stream, coarser, coarser, stream), strict=True
    ):
        _set(scale, theirs.weight[kept], theirs.bias[kept])
    return None if after is None else estimate(after[0], stream)


def _thin_residual(ours, theirs, sums, name, kept, channels):  # type: ignore[no-untyped-def]
    hidden = choose([(sums[f"{name}.second"], theirs.second.weight)], channels)
    _thin(ours.first, theirs.first, estimate(sums[f"{name}.first"], kept), hidden)
    _thin(ours.second, theirs.second, estimate(sums[f"{name}.second"], hidden), kept)


def _thin(ours, theirs, inputs, outputs):  # type: ignore[no-untyped-def]
    _set(ours, through(theirs.weight[outputs], inputs), theirs.bias[outputs])


def _set(layer: nn.Module, weight: Tensor, bias: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


def through(weight: Tensor, inputs: Tensor) -> Tensor:
    """Let a layer (outputs, inputs, …) read estimates (inputs, kept) of its inputs."""
    return torch.einsum("oi...,ik->ok...", weight, inputs.to(weight))


def choose(readers: list[tuple[Tensor, Tensor]], number: int) -> Tensor:
    """Return which channels stay, in order: the fewest lose what their readers need."""
    precisions, worths = [], []
    for moments, weight in readers:
        precisions.append(torch.linalg.inv(_regular(moments)))
        worth = weight.double().pow(2).movedim(1, 0).flatten(1).sum(1)
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


if __name__ == "__main__":
    main()
