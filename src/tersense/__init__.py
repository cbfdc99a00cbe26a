"""Compressed sensing of images with learned sparse ternary projections.

>>> imager = tersense.load("paper-r25")
>>> y = imager.sense(image)
>>> again = imager.reconstruct(y)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Imager",
    "Measurements",
    "Patterns",
    "Readout",
    "TernarySensor",
    "TersenseError",
    "from_pretrained",
    "load",
    "read",
    "read_measured",
]

if TYPE_CHECKING:
    from tersense.errors import TersenseError
    from tersense.measurements.measurements import Measurements
    from tersense.measurements.readout import Readout
    from tersense.measurements.tables import read_measured
    from tersense.models.hub import from_pretrained
    from tersense.models.imager import Imager
    from tersense.models.zoo import load, read
    from tersense.sensing.patterns import Patterns
    from tersense.sensing.ternary import TernarySensor

_HOMES = {
    "Imager": "models.imager",
    "Measurements": "measurements.measurements",
    "Patterns": "sensing.patterns",
    "Readout": "measurements.readout",
    "TernarySensor": "sensing.ternary",
    "TersenseError": "errors",
    "from_pretrained": "models.hub",
    "load": "models.zoo",
    "read": "models.zoo",
    "read_measured": "measurements.tables",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing tersense costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tersense' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tersense.{_HOMES[name]}"), name)
