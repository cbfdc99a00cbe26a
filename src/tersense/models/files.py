"""Model files.

A model file is a safetensors file: Φ as int8 (`phi`), α (`alpha`), the weights of the
reconstructor (`reconstructor.…`, matrices as float16), and one metadata entry `tersense`, a JSON
object with the geometry, the normalization, the reconstructor's name and options, and where the
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
from tersense.reconstruction.base import Reconstructor, build_reconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

FORMAT = 1
_WEIGHTS = "reconstructor."


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
        raise TersenseError(f"mean {mean:g} and deviation {std:g} cannot normalize images")
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
            raise TersenseError(f"weight {key} holds NaN or Inf; the file is damaged")
        weights[key] = found.to(wanted.dtype)
    reconstructor.load_state_dict(weights, assign=True)


def _to_half(value: Tensor) -> Tensor:
    """Store matrices in half precision; biases, statistics and counters as they are."""
    return value.half() if value.is_floating_point() and value.ndim > 1 else value
