"""The measurement matrix of an experiment: where a classical method gets its Φ, and what Φ is like.

A conventional solver works with any matrix. Given a learned one, it tells what the matrix alone is
worth; given a random one of the same density, what learning it was worth.
"""

from typing import Any

import numpy as np

from tersense.errors import TersenseError
from tersense.evaluation.protocols import CameraLike
from tersense.experiments.tables import NOT_SPARSE, Experiment, Options, recipe
from tersense.models.imager import Imager
from tersense.models.zoo import load, names
from tersense.sensing.patterns import Patterns, random_patterns, rows_for_rate


def require_models(experiments: list[Experiment]) -> None:
    """Refuse rows whose built-in model is not there, before anything is trained."""
    for experiment in experiments:
        if experiment.model and experiment.model not in names():
            raise TersenseError(
                f"row {experiment.name} needs the built-in model {experiment.model}, which is not "
                "there; install it, or choose other rows with --only"
            )


def find_patterns(experiment: Experiment, options: Options) -> Patterns:
    """Return the Φ that a classical method is given."""
    sensing = recipe(experiment, options).sensing
    rows = rows_for_rate(sensing.rate, sensing.stride)
    if experiment.model:
        return load(experiment.model).patterns.first(rows)
    if experiment.needs:
        folder = options.folder(experiment.needs)
        if not (folder / "model.safetensors").is_file():
            raise TersenseError(
                f"row {experiment.name} uses the Φ of {folder}, which holds no model; remove its "
                "result.json to train it again"
            )
        return load(folder).patterns
    density = None if experiment.camera == NOT_SPARSE else sensing.density
    return random_patterns(rows, sensing.window, density)


def which_matrix(experiment: Experiment, options: Options) -> dict[str, str]:
    """Say which Φ a classical method is given, so that results of another are not taken for it."""
    return {"camera": experiment.camera, "phi": find_patterns(experiment, options).hash}


def describe_matrix(camera: CameraLike) -> dict[str, Any]:
    """Return the figures of the matrix that was really used.

    Args:
        camera: Any; one of real weights is dense.

    Returns:
        rows, pixels per window, non-zeros and their share; for ternary matrices the pixels of a
        window that no pattern uses, the fewest and most non-zeros per pattern, the SHA-256 of Φ and
        the bytes of each storage form.
    """
    rows, pixels = camera.rows, camera.geometry.window**2
    if not isinstance(camera, Imager):
        return {"rows": rows, "pixels": pixels, "nonzeros": rows * pixels, "density": 1.0}
    patterns = camera.patterns
    return {"rows": rows, "pixels": pixels} | describe_patterns(patterns)


def describe_patterns(patterns: Patterns) -> dict[str, Any]:
    """Return the figures of a ternary matrix; see `describe_matrix`."""
    used = np.count_nonzero(patterns.phi, axis=0)
    per_pattern = np.count_nonzero(patterns.phi, axis=(1, 2))
    return {
        "nonzeros": patterns.nonzeros,
        "density": patterns.density,
        "unused_pixels": int((used == 0).sum()),
        "nonzeros_per_pattern": [int(per_pattern.min()), int(per_pattern.max())],
        "phi": patterns.hash,
        "storage_bytes": patterns.storage_bytes,
    }
