"""What every reconstructor is: its interface, its normalization, and the registry of names.

A reconstructor is one class marked `@register("name")`: a built-in one, one of your own, or one
that another installed package offers under the entry point group `tersense.reconstructors`.
"""

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.io.schema import build
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator

ENTRY_POINTS = "tersense.reconstructors"
_BUILT_IN = {
    "linear": "tersense.reconstruction.gaussian",
    "mlp": "tersense.reconstruction.mlp",
    "sda": "tersense.reconstruction.sda",
    "unrolled": "tersense.reconstruction.unrolled",
    "bp": "tersense.reconstruction.classical",
    "tv": "tersense.reconstruction.classical",
    "spgl1": "tersense.reconstruction.classical",
}


@dataclass(frozen=True)
class Normalization:
    """Pixels of zero mean and unit deviation, on which networks work.

    Sensing is linear, so measurements of raw pixels are normalized afterwards: (y − μ·Φ⋆1)/σ.

    Args:
        mean: μ of the training pixels.
        std: σ of the training pixels.
    """

    mean: float
    std: float

    def pixels(self, x: Tensor) -> Tensor:
        """Normalize raw pixels."""
        return (x - self.mean) / self.std

    def measurements(self, y: Tensor, ones: Tensor) -> Tensor:
        """Normalize y (N, m, h, w), given Φ⋆1 (m, h, w): which pixels each window really covers."""
        return (y - self.mean * ones) / self.std

    def raw(self, x: Tensor) -> Tensor:
        """Return normalized pixels to the raw scale."""
        return x * self.std + self.mean


class Reconstructor(nn.Module, ABC):
    """Turn normalized measurements into a normalized image.

    Subclasses name a frozen dataclass `Options` with their settings and take
    `(geometry, rows, options)`.

    Args:
        geometry: Window and stride of the camera.
        rows: m, the rows of Φ.
        options: The settings, an instance of the subclass's `Options`.
    """

    registered_name: str
    Options: type[Any]
    halo = 0  # windows around a tile that have a say in it
    any_rate = False  # whether it also reconstructs from the first m' < m measurements
    any_count = False  # whether that number may differ from window to window
    lowest_rate = 0.0  # below which it was not trained
    raw_pixels = False  # whether it takes y as it was sensed, without normalization
    half_precision = True  # whether it may compute in bfloat16; solvers may not

    def __init__(self, geometry: Geometry, rows: int, options: Any) -> None:
        super().__init__()
        self.geometry, self.rows, self.options = geometry, rows, options

    def prepare(self, theta: Tensor, batches: Iterable[Tensor]) -> None:
        """Get ready before the first training step; most have nothing to do.

        Args:
            theta: The sensing weights Θᵀ (m, n), which may be changed.
            batches: Normalized crops (N, H, W), as many as are asked for.
        """

    def start_from(self, other: "Reconstructor") -> None:
        """Take over the weights of a trained one; raise RuntimeError where they do not fit."""
        self.load_state_dict(other.state_dict())

    def whitening(self, operator: SensingOperator) -> Tensor | None:
        """Return what training need not compute in every step (`SensingOperator.whitening`)."""
        return None

    def compile_parts(self) -> bool:
        """Compile parts of the network for training, or return False to have it done as a whole."""
        return False

    @abstractmethod
    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct images of `size` (H, W).

        Args:
            y: (N, m, h, w), Φ applied to pixels of zero mean and unit deviation.
            operator: The camera, with its Φ and α.
            size: (H, W).
            deviation: Standard deviation of the error of each measurement, in the units of y and of
                a shape that broadcasts to it; None for exact measurements. Who cannot use it
                ignores it.
            counts: (N, h, w) integers, how many of its first rows each window was measured with;
                None for all. The others are zero in y.

        Returns:
            (N, H, W) pixels on the normalized scale.
        """

    def examine(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Reconstruct as `forward` does; also return the last feature maps (N, C, H/2, W/2).

        Adaptive sensing predicts errors from them. A reconstructor with `any_count` that has none
        cannot be part of it.
        """
        raise TersenseError(
            f"{self.registered_name} has no feature maps, by which adaptive sensing decides; "
            "measure uniformly, or use unrolled"
        )


def measured_rows(counts: Tensor, rows: int) -> Tensor:
    """Return (N, m, h, w): whether a window was measured with a row, given counts (N, h, w)."""
    return torch.arange(rows, device=counts.device)[:, None, None] < counts[:, None]


Registered = TypeVar("Registered", bound=type[Reconstructor])
_registry: dict[str, type[Reconstructor]] = {}


def register(name: str) -> Callable[[Registered], Registered]:
    """Make a reconstructor available under a name; refuse one that is taken."""

    def add(cls: Registered) -> Registered:
        home = f"{cls.__module__}.{cls.__qualname__}"
        taken = _registry.get(name)
        owner = f"{taken.__module__}.{taken.__qualname__}" if taken else home
        if owner != home or _BUILT_IN.get(name, cls.__module__) != cls.__module__:
            owner = owner if owner != home else _BUILT_IN[name]
            raise TersenseError(
                f"the name of a reconstructor must be new, got {name!r}, which {owner} has; "
                "register it under another"
            )
        cls.registered_name = name
        _registry[name] = cls
        return cls

    return add


def find_reconstructor(name: str) -> type[Reconstructor]:
    """Return the class registered under a name, importing its module first where need be."""
    if name not in _registry and name in _BUILT_IN:
        importlib.import_module(_BUILT_IN[name])
    if name in _registry:
        return _registry[name]
    offered = {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        known = ", ".join(sorted({*_registry, *_BUILT_IN, *offered}))
        raise TersenseError(f"no reconstructor is called {name!r}; known: {known}")
    try:
        cls = offered[name].load()
    except Exception as error:  # somebody else's module may fail in any way
        raise TersenseError(
            f"the reconstructor {name!r} of {offered[name].value} cannot be imported: {error}"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Reconstructor)):
        raise TersenseError(f"{offered[name].value} must be a Reconstructor, got {cls!r}")
    return register(name)(cls)


def build_reconstructor(
    name: str, options: dict[str, Any], geometry: Geometry, rows: int, on_meta: bool = False
) -> Reconstructor:
    """Build a reconstructor from its name and options.

    With `on_meta` it has shapes but no memory yet, so that a file cannot claim more than it holds.
    """
    cls = find_reconstructor(name)
    checked = build("reconstructor", cls.Options, options)
    with torch.device("meta" if on_meta else "cpu"):
        return cls(geometry, rows, checked)
