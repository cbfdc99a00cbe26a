"""Reconstructors: from measurements back to the picture.

A reconstructor is a module of this package with one class marked `@register("name")`; nothing
else needs to know about it. See `Reconstructor` for what it is given.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.sensing.operator import Geometry, SensingOperator


class Reconstructor(nn.Module, ABC):
    """Turn normalised measurements into a normalised picture.

    Subclasses name a frozen dataclass `Options` with their settings and take
    `(geometry, patterns, options)`.

    Args:
        geometry: Window and stride of the camera.
        patterns: m, the number of patterns.
        options: The settings, an instance of the subclass's `Options`.
    """

    registered_name: str
    Options: type[Any]
    halo = 0  # windows around a tile that have a say in it
    any_rate = False  # whether it also reconstructs from the first m' < m measurements

    def __init__(self, geometry: Geometry, patterns: int, options: Any) -> None:
        super().__init__()
        self.geometry, self.patterns, self.options = geometry, patterns, options

    def prepare(self, theta: Tensor, batches: Iterable[Tensor]) -> None:
        """Get ready before the first step of a training; most have nothing to do.

        Args:
            theta: The sensing weights Θᵀ (m, n), which may be changed.
            batches: Normalised crops (N, H, V), as many as are asked for.
        """

    def compile_parts(self) -> bool:
        """Compile parts of the network for training, or return False to have it done as a whole."""
        return False

    @abstractmethod
    def forward(self, y: Tensor, operator: SensingOperator, size: tuple[int, int]) -> Tensor:
        """Reconstruct pictures of `size` (H, V).

        Args:
            y: (N, m, h, w), Φ applied to pixels of zero mean and unit deviation.
            operator: The camera, with its Φ and α.
            size: (H, V).

        Returns:
            (N, H, V) pixels on the normalised scale.
        """


_registry: dict[str, type[Reconstructor]] = {}


def register(name: str) -> Callable[[type[Reconstructor]], type[Reconstructor]]:
    """Make a reconstructor available under a name."""

    def add(cls: type[Reconstructor]) -> type[Reconstructor]:
        cls.registered_name = name
        _registry[name] = cls
        return cls

    return add


def find_reconstructor(name: str) -> type[Reconstructor]:
    """Return the class registered under a name."""
    for module in ("gaussian", "mlp", "sda", "unrolled"):
        importlib.import_module(f"tersense.reconstruction.{module}")
    if name not in _registry:
        known = ", ".join(sorted(_registry))
        raise TersenseError(f"no reconstructor is called {name!r}; there is: {known}")
    return _registry[name]
