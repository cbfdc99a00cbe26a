"""The patterns as files that every program of a laboratory reads, and as an image."""

from pathlib import Path

import numpy as np

from tersense.errors import TersenseError, install_hint
from tersense.export.base import Outcome
from tersense.export.guide import fill_guide
from tersense.export.test_vectors import Vectors
from tersense.io.figures import draw_pattern_sheet, draw_sheet
from tersense.io.images import write_image
from tersense.models.imager import Imager

try:
    from scipy.io import savemat
except ImportError as error:
    raise TersenseError(f"a .mat file needs scipy: {install_hint('export')}") from error


def write(imager: Imager, vectors: Vectors, folder: Path) -> Outcome:
    """Write Φ as `.npy`, `.mat` and CSV, and draw every pattern."""
    patterns, phi = imager.patterns, imager.phi
    flat = phi.reshape(len(phi), -1)
    alpha = imager.operator.alpha.cpu().numpy()
    np.save(folder / "phi.npy", phi)
    np.savetxt(folder / "phi.csv", flat, fmt="%d", delimiter=",")
    variables = {
        "phi": flat,
        "patterns": phi.transpose(1, 2, 0),
        "alpha": alpha,
        "stride": patterns.stride,
        "mean": imager.mean,
        "std": imager.std,
    }
    savemat(folder / "phi.mat", variables, do_compression=True, oned_as="column")
    caption = f"{len(phi)} patterns, row by row: +1 orange, -1 blue"
    sheet = draw_pattern_sheet(phi, scale=max(1, 64 // patterns.window))
    write_image(folder / "patterns.png", draw_sheet([[(caption, sheet)]]))
    shapes = {
        "phi.npy": "(m, B, B) int8",
        "phi.csv": "m lines of B² values, pixels in raster order",
        "phi.mat": "phi m×B² as in the CSV, patterns B×B×m, alpha, stride, mean, std",
        "patterns.png": "every pattern, in the order of the rows",
    }
    values = {
        "rows": len(phi),
        "window": patterns.window,
        "pixels": patterns.window**2,
        "stride": patterns.stride,
        "offset": imager.geometry.offset,
        "mean": f"{imager.mean:.6g}",
        "std": f"{imager.std:.6g}",
        "nonzeros": f"{patterns.nonzeros:,}",
    }
    return Outcome(shapes, shapes, fill_guide("matrix", values))
