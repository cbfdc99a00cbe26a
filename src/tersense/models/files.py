"""Model files.

A model file is a safetensors file: Φ (`phi`), α (`alpha`), the weights of the reconstructor
(`reconstructor.…`, those of layers as float16; in a *compact* file those of fully connected layers
and convolutions as bytes, with a scale `….scale` for every 8 of a row), where adaptive sensing was
trained those of the predictor (`allocation.…`) and of the integer decision (`decision.…`), and one
metadata entry `tersense`, a JSON object with the geometry, the normalization, the reconstructor's
name and options, those of the predictor, and where the model comes from. Nothing in it names code
or paths.

Φ takes two bits per entry, (m, B, ⌈B/4⌉) bytes: four entries of a line per byte, the first in the
lowest bits, two's complement; the last byte of a line is filled up with zeros. In format 1 it is
(m, B, B) int8. Where all rows have K non-zeros and that is smaller, Φ is (m, K) int16 (format 4):
of each row its non-zeros in order, p for +1 and −p for −1 at place p = 1 … B² of the window; B, at
most 181, is in the JSON object (`window`).

Weights that are bytes keep their shape. A convolution, transposed or not, has weights (a, b, k, k),
taken as a rows of b·k² columns: its scales are (a, b·k²/8) float16. Weights whose columns are no
multiple of 8 stay float16. The format is 6 where the decision of an encoder looks around
(`decision.around`), 5 where convolutions are bytes; otherwise 4 where Φ is (m, K), 3 where fully
connected layers are bytes, and 2 where neither is so.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tersense.errors import TersenseError, one_line
from tersense.io.files import require_file, written_whole
from tersense.io.schema import above, at_least, at_most, build
from tersense.models.imager import Imager
from tersense.reconstruction.allocation import IntegerDecision
from tersense.reconstruction.allocation.predictor import PredictorOptions, predictor_for
from tersense.reconstruction.base import build_reconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import MAX_ENTRIES, Patterns

FORMAT, _COMPACT_CONVOLUTIONS, _SPARSE, _COMPACT, _PLAIN = 6, 5, 4, 3, 2
_ENTRIES = 4  # of Φ in a byte
_WIDEST = 181  # window whose places are 16-bit numbers with a sign
_SHARING = 8  # weights with one scale
_LARGEST_CODE = 127
_WEIGHTS, _ALLOCATION, _DECISION = "reconstructor.", "allocation.", "decision."
_AROUND = _DECISION + "around"  # zeros where a file does not have it


def write_model(path: str | Path, imager: Imager, compact: bool = False) -> None:
    """Write a model file, whole or not at all.

    Args:
        path: Where to.
        imager: The model.
        compact: Store fully connected layers and convolutions in five eighths of the space. Their
            weights change by at most 1/253 of the largest of eight, or 0.000031 if that is more.

    The format of the file is the lowest that says what it holds, so that older programs read what
    they can: 2 for all in half precision, 3 for compact layers that are fully connected, 4 for a
    sparse Φ, 5 for compact convolutions, 6 for a decision that looks around.
    """
    weights = imager.reconstructor.state_dict()
    tensors = {_WEIGHTS + key: _to_half(value) for key, value in weights.items()}
    coded = [key for key, value in weights.items() if compact and _can_be_bytes(value)]
    for key in coded:
        tensors[_WEIGHTS + key], tensors[_scale_of(_WEIGHTS + key)] = _to_bytes(weights[key])
    packed = _pack(imager.phi)
    places = _to_places(imager.phi)
    sparse = places is not None and places.nbytes < packed.nbytes
    tensors["phi"] = torch.from_numpy(places if sparse else packed)
    tensors["alpha"] = imager.operator.alpha
    description: dict[str, Any] = {
        "name": imager.name,
        "stride": imager.patterns.stride,
        "mean": imager.mean,
        "std": imager.std,
        "reconstructor": imager.reconstructor.registered_name,
        "options": asdict(imager.reconstructor.options),
        "about": imager.about,
    }
    if sparse:
        description["window"] = imager.patterns.window
    predictor, decision = imager.camera.predictor, imager.camera.decision
    if predictor is not None:
        description["allocation"] = asdict(predictor.options)
        for key, value in predictor.state_dict().items():
            tensors[_ALLOCATION + key] = _to_half(value)
    if predictor is not None and decision is not None:
        tensors |= {_DECISION + key: value for key, value in decision.state_dict().items()}
        if not decision.around.any():
            del tensors[_AROUND]
    description["format"] = _format_of(tensors, [weights[key] for key in coded], sparse)
    metadata = {"tersense": json.dumps(description, sort_keys=True)}
    with written_whole(path) as partial:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, partial, metadata)


def _format_of(names: Iterable[str], coded: list[Tensor], sparse: bool) -> int:
    """Return the oldest format that knows these names, weights as bytes, and Φ as it is stored."""
    if _AROUND in names:
        return FORMAT
    if any(weights.ndim > 2 for weights in coded):
        return _COMPACT_CONVOLUTIONS
    return _SPARSE if sparse else _COMPACT if coded else _PLAIN


@dataclass(frozen=True)
class _Description:
    """What a model file says of itself, besides its tensors."""

    format: Annotated[int, at_least(1)]
    name: str
    stride: Annotated[int, at_least(1)]
    mean: float
    std: Annotated[float, above(0)]
    reconstructor: str
    options: dict[str, Any]
    about: dict[str, Any]
    allocation: dict[str, Any] = field(default_factory=dict)
    window: Annotated[int, at_least(0), at_most(_WIDEST)] = 0  # where Φ does not tell it


def read_model(path: str | Path, device: str | torch.device = "cpu") -> Imager:
    """Read a model file, checking names, types and shapes before any weight is used."""
    require_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})["tersense"])
            _require_known_format(content)
            description = build("model", _Description, content)
            return _build(description, file, device)
    except TersenseError as error:
        raise TersenseError(f"{path}: {error}") from error
    except KeyError as error:
        raise TersenseError(f"{path} is not a usable model file: no {error}") from error
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError, OverflowError,
            RecursionError) as error:  # fmt: skip
        raise TersenseError(f"{path} is not a usable model file: {one_line(error)}") from error


def _require_known_format(content: Any) -> None:
    """Refuse what a later program has written, before anything else of it is judged."""
    if not isinstance(content, dict):
        raise TersenseError("its description must be a table")
    version = content["format"]
    if type(version) is int and version > FORMAT:
        raise TersenseError(
            f"model format {version} is newer than {FORMAT}, the newest this program knows; "
            "update tersense"
        )


def _build(description: _Description, file: Any, device: str | torch.device) -> Imager:
    """Take from an open file what belongs there; no tensor is read before its shape is known."""
    patterns = Patterns(read_phi(file, description.window), description.stride)
    if not patterns.nonzeros:
        raise TersenseError("Φ must have entries that are not zero; this one measures nothing")
    shape = tuple(file.get_slice("alpha").get_shape())
    alpha = file.get_tensor("alpha").clone() if shape == (len(patterns),) else None
    if alpha is None or not alpha.is_floating_point() or not alpha.float().isfinite().all():
        raise TersenseError(
            f"alpha must be {len(patterns)} finite real numbers, got "
            f"{file.get_slice('alpha').get_dtype()} of shape {shape}"
        )
    geometry = Geometry(patterns.window, patterns.stride)
    make = partial(
        build_reconstructor, description.reconstructor, description.options, geometry, len(patterns)
    )
    reconstructor = make(on_meta=True)
    parts: dict[str, nn.Module] = {_WEIGHTS: reconstructor}
    if description.allocation:
        options = build("allocation", PredictorOptions, description.allocation)
        with torch.device("meta"):
            predictor = predictor_for(reconstructor, options)
            parts[_ALLOCATION] = predictor
            if any(key.startswith(_DECISION) for key in file.keys()):  # noqa: SIM118
                parts[_DECISION] = IntegerDecision(len(patterns), predictor.levels)
    _take_weights(parts, file)
    if any(buffer.is_meta for buffer in reconstructor.buffers()):  # computed, not stored
        weights = reconstructor.state_dict()
        reconstructor = make()
        reconstructor.load_state_dict(weights)
    # Convolutions are faster with the channels of a pixel side by side.
    reconstructor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    imager = Imager(
        description.name, patterns, alpha, description.mean, description.std, reconstructor,
        description.about, device,
    )  # fmt: skip
    decision = parts.get(_DECISION)
    if isinstance(decision, IntegerDecision):
        decision.check()
    for name, prefix in (("predictor", _ALLOCATION), ("decision", _DECISION)):
        part = parts.get(prefix)
        setattr(imager.camera, name, part and part.eval().requires_grad_(False).to(device))
    return imager


def read_phi(file: Any, window: int) -> NDArray[np.int8]:
    """Return Φ (m, B, B) of an open model file, of any format; `window` is B of format 4, or 0."""
    stored = file.get_slice("phi")
    shape, packed = tuple(stored.get_shape()), stored.get_dtype() == "U8"
    if packed and (len(shape) != 3 or shape[2] != -(-shape[1] // _ENTRIES)):
        raise TersenseError(f"packed Φ must have shape (m, B, ⌈B/{_ENTRIES}⌉), got {shape}")
    sparse = stored.get_dtype() == "I16"
    if sparse and not window:
        raise TersenseError("window must stand in the description where Φ is stored as places")
    if sparse and not (len(shape) == 2 and 1 <= shape[1] <= window**2):
        raise TersenseError(f"places of Φ must have shape (m, 1 to {window}²), got {shape}")
    side = window if sparse else shape[1] if packed else 0
    entries = shape[0] * side**2 if side else math.prod(shape)
    if entries > MAX_ENTRIES:
        raise TersenseError(f"Φ must have at most {MAX_ENTRIES:,} entries, got {entries:,}")
    # Copies: the file may be replaced or cut short while the model is in use.
    phi: NDArray[Any] = file.get_tensor("phi").clone().numpy()
    if sparse:
        return _from_places(phi, window)
    return _unpack(phi) if packed else phi


def _to_places(phi: NDArray[np.int8]) -> NDArray[np.int16] | None:
    """Return the places of the non-zeros with their signs, if all rows have as many."""
    flat = phi.reshape(len(phi), -1)
    if phi.shape[1] > _WIDEST or np.ptp(np.count_nonzero(flat, axis=1)):
        return None
    rows, places = np.nonzero(flat)
    return ((places + 1) * flat[rows, places]).astype(np.int16).reshape(len(phi), -1)


def _from_places(places: NDArray[np.int16], window: int) -> NDArray[np.int8]:
    order = np.abs(places.astype(np.int32))
    if order.min(initial=1) < 1 or order.max(initial=1) > window**2 or (np.diff(order) < 1).any():
        raise TersenseError(f"places of Φ must increase from 1 to at most {window}²")
    phi = np.zeros((len(places), window**2), np.int8)
    np.put_along_axis(phi, order - 1, np.sign(places).astype(np.int8), axis=1)
    return phi.reshape(-1, window, window)


def _pack(phi: NDArray[np.int8]) -> NDArray[np.uint8]:
    whole = np.pad(phi, ((0, 0), (0, 0), (0, -phi.shape[2] % _ENTRIES))).view(np.uint8) & 3
    parts = [whole[..., k::_ENTRIES] << np.uint8(2 * k) for k in range(_ENTRIES)]
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(parts)
    return packed


def _unpack(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    codes = np.stack([packed >> 2 * k & 3 for k in range(_ENTRIES)], axis=-1)
    entries = np.array([0, 1, 2, -1], np.int8)[codes].reshape(*packed.shape[:2], -1)
    phi, rest = np.split(entries, [packed.shape[1]], axis=2)
    if rest.any():
        raise TersenseError("Φ must be filled up with zeros; the file is damaged")
    return phi


def _take_weights(parts: dict[str, nn.Module], file: Any) -> None:
    """Give parts on the meta device their weights, if they are exactly the right ones."""
    expected = {start + key: wanted for start, part in parts.items()
                for key, wanted in part.state_dict().items()}  # fmt: skip
    there = set(file.keys())
    left_out = {_AROUND: expected.pop(_AROUND)} if _AROUND in expected.keys() - there else {}
    scaled = {k for k in expected if k.startswith(_WEIGHTS) and _scale_of(k) in there}
    coded = {k for k in scaled if _can_be_bytes(expected[k])}
    if there != {"phi", "alpha", *expected, *map(_scale_of, coded)}:
        raise TersenseError("the weights are not those of the named reconstructor")
    weights = {k: torch.zeros_like(v, device="cpu") for k, v in left_out.items()}
    for key, wanted in expected.items():
        shape = tuple(file.get_slice(key).get_shape())
        found = file.get_tensor(key) if shape == wanted.shape else None
        if found is not None and key in coded:
            found = _from_bytes(found, file, _scale_of(key))
        if found is None or found.is_floating_point() != wanted.is_floating_point():
            raise TersenseError(
                f"weight {key.removeprefix(_WEIGHTS)} must be {wanted.dtype} of shape "
                f"{tuple(wanted.shape)}, got {file.get_slice(key).get_dtype()} of {shape}"
            )
        weights[key] = found.to(wanted.dtype, copy=True)
        if not weights[key].isfinite().all():
            raise TersenseError(
                f"weight {key.removeprefix(_WEIGHTS)} holds NaN or Inf; the file is damaged"
            )
    for start, part in parts.items():
        own = {k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)}
        part.load_state_dict(own, assign=True)


def _scale_of(key: str) -> str:
    return f"{key}.scale"


def _can_be_bytes(weights: Tensor) -> bool:
    """Return whether these are weights of a layer or convolution whose rows are whole groups."""
    columns = math.prod(weights.shape[1:]) if weights.ndim in (2, 4) else 0
    return weights.is_floating_point() and columns > 0 and columns % _SHARING == 0


def _to_bytes(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole numbers, int8, and what one of them is worth, (rows, columns/8) float16."""
    shared = weights.detach().float().reshape(len(weights), -1, _SHARING)
    least = torch.finfo(torch.half).tiny  # smaller scales would lose digits
    scale = (shared.abs().amax(dim=2) / _LARGEST_CODE).clamp(min=least).half()
    codes = (shared / scale.float()[..., None]).round().clamp(-_LARGEST_CODE, _LARGEST_CODE)
    return codes.to(torch.int8).reshape(weights.shape), scale


def _from_bytes(codes: Tensor, file: Any, key: str) -> Tensor:
    """Return the weights of a compact file, given where their scales are."""
    stored = file.get_slice(key)
    shape, kind = tuple(stored.get_shape()), stored.get_dtype()
    wanted = (len(codes), math.prod(codes.shape[1:]) // _SHARING)
    if codes.dtype != torch.int8:
        raise TersenseError(f"{key} must stand beside bytes, got {codes.dtype}")
    if shape != wanted or kind != "F16":
        raise TersenseError(f"{key} must be F16 of shape {wanted}, got {kind} of {shape}")
    scale: Tensor = file.get_tensor(key).float()
    weights: Tensor = codes.view(*wanted, _SHARING) * scale[..., None]
    return weights.view_as(codes)


def _to_half(value: Tensor) -> Tensor:
    """Store matrices in half precision; biases, statistics and counters as they are."""
    return value.half() if value.is_floating_point() and value.ndim > 1 else value
