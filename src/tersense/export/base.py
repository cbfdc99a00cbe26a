"""From a trained camera to the things that hardware is made of.

An export is a folder: the artefacts of its kind, test vectors, and `manifest.json`, which says
what the numbers mean and guards every file with a checksum. A kind is a module of this package
with a function `write`; nothing is imported before it is asked for.

    Imager ──write()──▶ artefacts ┐
       └────vectors───▶ vectors/  ├──checksums──▶ manifest.json
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tersense.errors import TersenseError

if TYPE_CHECKING:
    from tersense.export.test_vectors import Vectors
    from tersense.measurements.manifest import Manifest
    from tersense.models.imager import Imager

KINDS = {
    "verilog": "a synthesizable encoder and its testbench",
    "c": "a freestanding C99 encoder",
    "patterns": "frames for a digital mirror device",
    "matrix": "the patterns as .npy, .mat, CSV and a picture",
    "onnx": "sensor and reconstructor for other runtimes",
}
_MODULES = {"patterns": "dmd"}


@dataclass(frozen=True)
class Outcome:
    """What an exporter has to tell besides its files.

    Args:
        details: What belongs to this kind alone, for the manifest; anything that JSON can hold.
        facts: Names and values to print.
    """

    details: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


class Writer(Protocol):
    """The function `write` of a kind's module."""

    def __call__(
        self, imager: "Imager", vectors: "Vectors", folder: Path, **options: Any
    ) -> Outcome:
        """Write the artefacts into a folder that has nothing but the vectors in it."""


def find_writer(kind: str) -> Writer:
    """Return the exporter of a kind."""
    if kind not in KINDS:
        raise TersenseError(f"no export is called {kind!r}; there is: {', '.join(KINDS)}")
    writer: Writer = importlib.import_module(f"tersense.export.{_MODULES.get(kind, kind)}").write
    return writer


def export(
    kind: str, imager: "Imager", folder: str | Path, **options: Any
) -> "tuple[Manifest, dict[str, str]]":
    """Write an export, whole or not at all.

    Args:
        kind: One of `KINDS`.
        imager: The camera.
        folder: A folder that does not exist yet, or is empty.
        options: The kind's own settings.

    Returns:
        The manifest as it was written, and the kind's own names and values to print.
    """
    from tersense.export.test_vectors import make_vectors
    from tersense.io.files import folder_written_whole
    from tersense.measurements.manifest import Manifest

    writer = find_writer(kind)
    with folder_written_whole(folder) as partial:
        vectors = make_vectors(imager.patterns)
        vectors.save(partial / "vectors")
        outcome = writer(imager, vectors, partial, **options)
        manifest = Manifest.of(kind, imager, partial, outcome.details)
        manifest.write(partial)
    return manifest, outcome.facts
