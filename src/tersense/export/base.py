"""What every export is: artifacts, test vectors and a manifest, in one folder.

An export is a folder: the artifacts of its kind, test vectors, `README.md`, which tells an engineer
how to go on, and `manifest.json`, which says what the numbers mean and guards every file with a
checksum. A kind is a module of this package
with a function `write`; nothing is imported before it is asked for.

    Imager ──write()──▶ artifacts ┐
       └──test vectors─▶ vectors/ ├──checksums──▶ manifest.json
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tersense.errors import TersenseError
from tersense.export.guide import write_readme
from tersense.export.test_vectors import Vectors, make_vectors
from tersense.io.deep import USUAL, require_depth
from tersense.io.files import folder_written_whole
from tersense.measurements.manifest import Manifest, fingerprints
from tersense.models.imager import Imager

KINDS = {
    "verilog": "a synthesizable encoder and its testbench",
    "c": "a freestanding C99 encoder",
    "patterns": "frames for a digital mirror device",
    "matrix": "the patterns as .npy, .mat, CSV and an image",
    "onnx": "sensor and reconstructor for other runtimes",
    "web": "a page that senses and reconstructs in the browser",
}
_MODULES = {"patterns": "dmd"}


@dataclass(frozen=True)
class Outcome:
    """What an exporter has to tell besides its files.

    Args:
        details: What belongs to this kind alone, for the manifest; anything that JSON can hold.
        facts: Names and values to print.
        guide: What README.md tells about this kind, in Markdown.
    """

    details: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    guide: str = ""


class Writer(Protocol):
    """The function `write` of a kind's module."""

    def __call__(self, imager: Imager, vectors: Vectors, folder: Path, **options: Any) -> Outcome:
        """Write the artifacts into a folder that has nothing but the vectors in it."""


def find_writer(kind: str) -> Writer:
    """Return the exporter of a kind."""
    if kind not in KINDS:
        raise TersenseError(f"no export is called {kind!r}; there is: {', '.join(KINDS)}")
    writer: Writer = importlib.import_module(f"tersense.export.{_MODULES.get(kind, kind)}").write
    return writer


def export(
    kind: str, imager: Imager, folder: str | Path, **options: Any
) -> tuple[Manifest, dict[str, str]]:
    """Write an export, whole or not at all.

    Args:
        kind: One of `KINDS`.
        imager: The camera.
        folder: A folder that does not exist yet, or is empty.
        options: The kind's own settings. `depth`, the bits per pixel, also makes the test vectors.

    Returns:
        The manifest as it was written, and the kind's own names and values to print.
    """
    writer = find_writer(kind)
    depth = options.get("depth", USUAL)
    imager.patterns.require_depth(require_depth(depth))
    with folder_written_whole(folder) as partial:
        vectors = make_vectors(imager.patterns, depth)
        vectors.save(partial / "vectors")
        outcome = writer(imager, vectors, partial, **options)
        write_readme(partial, kind, imager, depth, outcome.guide)
        manifest = describe_export(kind, imager, partial, outcome.details, depth)
        manifest.write(partial)
    return manifest, outcome.facts


def describe_export(
    kind: str, imager: Imager, folder: Path, details: dict[str, Any], depth: int = USUAL
) -> Manifest:
    """Return the manifest of a camera and of the files in a folder."""
    patterns = imager.patterns
    plus, minus = patterns.signs_per_row
    counts = plus + minus
    return Manifest(
        kind=kind,
        model=imager.name,
        window=patterns.window,
        stride=patterns.stride,
        offset=imager.geometry.offset,
        rows=len(patterns),
        rate=patterns.rate,
        nonzeros=patterns.nonzeros,
        nonzeros_per_pattern=(int(counts.min()), int(counts.max())),
        accumulator_bits=patterns.accumulator_bits_at(depth),
        mean=imager.mean,
        std=imager.std,
        alpha=tuple(float(value) for value in imager.operator.alpha),
        phi=patterns.hash,
        files=fingerprints(folder),
        details=details,
        pixel_bits=depth,
    )
