"""Model files, and the models that come with the package.

A model file is a safetensors file: Φ as int8 (`phi`), α (`alpha`), the weights of the
reconstructor (`reconstructor.…`, matrices as float16), and one metadata entry `tersense`, a JSON
object with the geometry, the normalisation, the reconstructor's name and options, and where the
model comes from. Nothing in it names code or paths.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tersense.errors import TersenseError, one_line
from tersense.io.files import written_whole
from tersense.models.imager import Imager
from tersense.reconstruction.base import Reconstructor, find_reconstructor
from tersense.runtime.device import choose_device
from tersense.sensing.operator import Geometry
from tersense.sensing.patterns import SUFFIXES, read_patterns
from tersense.sensing.ternary import Patterns
from tersense.training.config import build_section

FORMAT = 1
ZOO = Path(__file__).parent / "weights"
ALIASES = {"default": "lapped-r25"}
PRECISIONS = ("float32", "bfloat16")
_WEIGHTS = "reconstructor."
_USUAL_PIXELS = 116.18, 68.64  # mean and deviation of photographs, as in the paper's code


def names() -> list[str]:
    """List the built-in models."""
    return sorted(path.stem for path in ZOO.glob("*.safetensors"))


def load(
    name_or_path: str | Path,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    stride: int | None = None,
) -> Imager:
    """Load a built-in model by name, any model file by path, or patterns of your own.

    Args:
        name_or_path: A name that `tersense models` lists, the path of a model file, the folder of
            a training, or a `.npy` or `.mat` file of patterns (see `fixed`): these have no network
            yet, and are reconstructed by the best linear estimate.
        device: Where the imager will compute: auto, cpu, cuda, or a `torch.device`.
        precision: float32, or bfloat16 where the machine is fast at it.
        stride: S of your own patterns; W where not given. A model has its own.
    """
    if precision not in PRECISIONS:
        raise TersenseError(f"no precision is called {precision!r}; use {' or '.join(PRECISIONS)}")
    device = choose_device(device)
    name = ALIASES.get(str(name_or_path), str(name_or_path))
    if Path(name).suffix.lower() in SUFFIXES:
        return _untrained(Path(name), stride, device)
    if stride is not None:
        raise TersenseError(f"{name} has its own stride; only a file of patterns can be given one")
    imager = read_model(_find(name), device)
    imager.precision = precision
    if name in names():
        imager.name = name
    return imager


def _untrained(path: Path, stride: int | None, device: str | torch.device) -> Imager:
    """Return a camera of the user's own patterns, with the linear reconstructor."""
    patterns = read_patterns(path, stride)
    geometry, m = Geometry(patterns.window, patterns.stride), len(patterns)
    linear = build_reconstructor("linear", {}, geometry, m)
    about = {"patterns": path.name, "training": "none"}
    return Imager(path.stem, patterns, torch.ones(m), *_USUAL_PIXELS, linear, about, device)


def _find(name: str) -> Path:
    """Return the file of a built-in model, a model file, or the folder of a training."""
    if name in names():
        return ZOO / f"{name}.safetensors"
    if (Path(name) / "model.safetensors").is_file():
        return Path(name) / "model.safetensors"
    if not Path(name).is_file():
        known = ", ".join([*names(), *ALIASES])
        raise TersenseError(f"no model or model file is called {name}; built in: {known}")
    return Path(name)


def find_by_patterns(phi_hash: str, stride: int, count: int) -> str:
    """Return the name of the built-in model whose first `count` patterns have the given hash."""
    for name in names():
        with safe_open(ZOO / f"{name}.safetensors", framework="np") as file:
            phi, description = file.get_tensor("phi"), json.loads(file.metadata()["tersense"])
        if description["stride"] == stride and Patterns(phi[:count], stride).hash == phi_hash:
            return name
    raise TersenseError(
        f"no built-in model has the patterns {phi_hash[:12]}… of this file; "
        "name the model that sensed it with -m"
    )


def write_model(path: str | Path, imager: Imager) -> None:
    """Write a model file, whole or not at all."""
    weights = imager.reconstructor.state_dict()
    tensors = {_WEIGHTS + key: _to_half(value) for key, value in weights.items()}
    tensors["phi"] = torch.from_numpy(imager.phi.copy())
    tensors["alpha"] = imager.operator.alpha
    description = {
        "format": FORMAT,
        "name": imager.name,
        "stride": imager.patterns.stride,
        "mean": imager.mean,
        "std": imager.std,
        "reconstructor": imager.reconstructor.registered_name,
        "options": asdict(imager.reconstructor.options),
        "about": imager.about,
    }
    metadata = {"tersense": json.dumps(description, sort_keys=True)}
    with written_whole(path) as partial:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, partial, metadata)


def read_model(path: str | Path, device: str | torch.device = "cpu") -> Imager:
    """Read a model file, checking names, types and shapes before any weight is used."""
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["tersense"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return _build(description, tensors, device)
    except TersenseError as error:
        raise TersenseError(f"{path}: {error}") from error
    except KeyError as error:
        raise TersenseError(f"{path} is not a usable model file: no {error}") from error
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TersenseError(f"{path} is not a usable model file: {one_line(error)}") from error


def _build(
    description: dict[str, Any], tensors: dict[str, Tensor], device: str | torch.device
) -> Imager:
    if description["format"] > FORMAT:
        raise TersenseError(
            f"model format {description['format']} is newer than {FORMAT}, the newest this "
            "program knows; update tersense"
        )
    patterns = Patterns(tensors.pop("phi").numpy(), description["stride"])
    mean, std, about = float(description["mean"]), float(description["std"]), description["about"]
    if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
        raise TersenseError(f"mean {mean:g} and deviation {std:g} cannot normalise pictures")
    if not isinstance(about, dict):
        raise TersenseError(f"`about` describes the model by name and value, not {about!r}")
    alpha = tensors.pop("alpha")
    if alpha.shape != (len(patterns),) or not alpha.isfinite().all():
        raise TersenseError(
            f"alpha has shape {tuple(alpha.shape)}, not ({len(patterns)},), or is not finite"
        )
    reconstructor = build_reconstructor(
        description["reconstructor"],
        description["options"],
        Geometry(patterns.window, patterns.stride),
        len(patterns),
        on_meta=True,
    )
    _take_weights(reconstructor, tensors)
    # Convolutions are faster with the channels of a pixel side by side.
    reconstructor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Imager(
        str(description["name"]), patterns, alpha, mean, std, reconstructor, about, device
    )  # fmt: skip


def build_reconstructor(
    name: str, options: dict[str, Any], geometry: Geometry, patterns: int, on_meta: bool = False
) -> Reconstructor:
    """Build a reconstructor from its name and options.

    With `on_meta` it has shapes but no memory yet, so that a file cannot claim more than it holds.
    """
    cls = find_reconstructor(name)
    checked = build_section("reconstructor", cls.Options, options)
    with torch.device("meta" if on_meta else "cpu"):
        return cls(geometry, patterns, checked)


def _take_weights(reconstructor: Reconstructor, tensors: dict[str, Tensor]) -> None:
    """Give a reconstructor on the meta device its weights, if they are exactly the right ones."""
    expected = reconstructor.state_dict()
    if set(tensors) != {_WEIGHTS + key for key in expected}:
        raise TersenseError("the weights are not those of the named reconstructor")
    weights = {}
    for key, wanted in expected.items():
        found = tensors[_WEIGHTS + key]
        if found.shape != wanted.shape or found.is_floating_point() != wanted.is_floating_point():
            raise TersenseError(
                f"weight {key} is {found.dtype} of shape {tuple(found.shape)}, "
                f"not {wanted.dtype} of {tuple(wanted.shape)}"
            )
        if not found.isfinite().all():
            raise TersenseError(f"weight {key} holds what is no number; the file is damaged")
        weights[key] = found.to(wanted.dtype)
    reconstructor.load_state_dict(weights, assign=True)


def _to_half(value: Tensor) -> Tensor:
    """Store matrices in half precision; biases, statistics and counters as they are."""
    return value.half() if value.is_floating_point() and value.ndim > 1 else value
