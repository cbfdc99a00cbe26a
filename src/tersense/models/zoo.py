"""The models that come with the package, and what a name or a path means."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open

from tersense.errors import TersenseError
from tersense.measurements.measurements import FindPatterns, Measurements
from tersense.measurements.tsm import MAX_PIXELS
from tersense.models.files import read_model, read_phi
from tersense.models.imager import Imager
from tersense.runtime.device import choose_device, is_fast_at_bfloat16
from tersense.sensing.patterns import SUFFIXES, Patterns, read_patterns

WEIGHTS = Path(__file__).parent / "weights"


class Alias(NamedTuple):
    """Another name: of a model, or of one for every rate at the rate that is meant."""

    model: str
    rate: float | None = None


ALIASES = {
    "default": Alias("lapped", 0.25),
    # Models of their own until one network was as good at all of these rates, or nearly so.
    "lapped-r01": Alias("lapped", 0.01),
    "lapped-r04": Alias("lapped", 0.04),
    "lapped-r10": Alias("lapped", 0.1),
    "lapped-r25": Alias("lapped", 0.25),
    "lapped-r50": Alias("lapped", 0.5),
    "block-r10": Alias("flex", 0.1),
}
PRECISIONS = ("float32", "bfloat16", "auto")


def names() -> list[str]:
    """List the built-in models."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def load(
    name_or_path: str | Path,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    stride: int | None = None,
) -> Imager:
    """Load a built-in model by name, any model file by path, or patterns of your own.

    Args:
        name_or_path: A name that `tersense models` lists, the path of a model file, the folder of
            a training run, or a `.npy` or `.mat` file of patterns (see `sensing.patterns`): these
            have no network yet, and are reconstructed by the best linear estimate.
        device: Where the imager will compute: auto, cpu, cuda, or a `torch.device`.
        precision: float32, bfloat16, or auto: bfloat16 where the processor has instructions for it.
        stride: S of your own patterns; B where not given. A model has its own.
    """
    if precision not in PRECISIONS:
        raise TersenseError(f"no precision is called {precision!r}; use {', '.join(PRECISIONS)}")
    device = choose_device(device)
    if precision == "auto":
        precision = "bfloat16" if is_fast_at_bfloat16(device) else "float32"
    name, rate = ALIASES.get(str(name_or_path), Alias(str(name_or_path)))
    if Path(name).suffix.lower() in SUFFIXES:
        imager = Imager.untrained(read_patterns(name, stride), name=Path(name).stem, device=device)
        imager.about["patterns"] = Path(name).name
        imager.precision = precision
        return imager
    if stride is not None:
        raise TersenseError(f"{name} has its own stride; only a file of patterns can be given one")
    imager = read_model(find_file(name), device)
    imager.precision = precision
    if name in names():
        imager.name = name
    return imager if rate is None else imager.at_rate(rate)


def whole_model(name: str) -> str:
    """Return the model that a name stands for, with all its rates; most stand for themselves."""
    return ALIASES.get(name, Alias(name)).model


def find_file(name_or_path: str | Path) -> Path:
    """Return the file of a built-in model, a model file, or that of a training run's folder."""
    name = whole_model(str(name_or_path))
    if name in names():
        return WEIGHTS / f"{name}.safetensors"
    if (Path(name) / "model.safetensors").is_file():
        return Path(name) / "model.safetensors"
    if not Path(name).is_file():
        known = ", ".join([*names(), *ALIASES])
        raise TersenseError(f"no model or model file is called {name}; built in: {known}")
    return Path(name)


def find_by_patterns(phi_hash: str, stride: int, count: int) -> str:
    """Return the name of the built-in model whose first `count` patterns have the given hash.

    Where several do, as a small and a large network for one camera, it is the largest.
    """
    return share_patterns(phi_hash, stride, count)[0]


def share_patterns(phi_hash: str, stride: int, count: int) -> tuple[str, ...]:
    """Return the names of all built-in models with these first patterns, the largest first."""
    return _find_by_hash(phi_hash, stride, count)[0]


def read(
    path: str | Path, model: "str | Path | Imager | None" = None, max_pixels: int = MAX_PIXELS
) -> Measurements:
    """Read a measurement file, coded or plain.

    Args:
        path: The file.
        model: That sensed it, or its name: a coded file needs its patterns. None for the built-in
            model that has them.
        max_pixels: Refuse larger images.
    """
    return Measurements.load(path, max_pixels, patterns_of(model))


def patterns_of(model: "str | Path | Imager | None") -> FindPatterns:
    """Return what finds the patterns that coded files need, each once; see `read`."""
    if model is None:
        return lambda digits, stride, count: _find_by_hash(digits, stride, count)[1]

    @cache
    def first(count: int) -> Patterns:
        imager = model if isinstance(model, Imager) else load(whole_model(str(model)))
        patterns = imager.patterns
        return patterns if count >= len(patterns) else patterns.first(count)

    return lambda digits, stride, count: first(count)


@cache
def _find_by_hash(digits: str, stride: int, count: int) -> tuple[tuple[str, ...], Patterns]:
    """Return the built-in models whose first `count` patterns have a hash that begins so."""
    found: list[tuple[int, str, Patterns]] = []
    for name in names():
        path = WEIGHTS / f"{name}.safetensors"
        with safe_open(path, framework="pt") as file:
            description = json.loads(file.metadata()["tersense"])
            phi = read_phi(file, description.get("window", 0))
        if description["stride"] != stride:
            continue
        patterns = Patterns(phi[:count], stride)
        if patterns.hash.startswith(digits):
            found.append((path.stat().st_size, name, patterns))
    if not found:
        raise TersenseError(
            f"no built-in model has the patterns {digits[:12]}… of this file; "
            "name the model that sensed it with -m"
        )
    found.sort(reverse=True, key=lambda model: model[0])
    return tuple(name for _, name, _ in found), found[0][2]
