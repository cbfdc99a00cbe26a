"""Sensor and reconstructor as ONNX models, for runtimes without Python.

    image (n, height, width) uint8 ──sensor──▶ y (n, m, h, w) int32
    y as float32, inside (height, width) ──reconstructor──▶ image (n, height, width) float32

The sensor is one integer convolution, exact by the definition of the operator. `inside` is an
image of ones: its shape tells the size that y alone does not, and Φ⋆1 is made from it. A universal
reconstructor is also told how many rows each window was measured with, `counts` (n, h, w), and the
deviation of each row's errors, `noise` (m,). All sizes are free. Both models are run by onnxruntime
and compared with torch before they are kept.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tersense.errors import TersenseError, install_hint, one_line
from tersense.export.base import Outcome
from tersense.export.guide import fill_guide
from tersense.export.test_vectors import Vectors, photograph
from tersense.measurements.measurements import Measurements
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

try:
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401 (torch's exporter needs it)
except ImportError as error:
    raise TersenseError(f"exporting ONNX needs {error.name}: {install_hint('export')}") from error

OPSET, IR_VERSION = 18, 9
_TRIAL_NOISE = 20.0  # gray levels, told to universal reconstructors when they are compared
LARGEST_DIFFERENCE = 0.02  # of a pixel's value, between torch and onnxruntime
_SENSOR, _RECONSTRUCTOR = "sensor.onnx", "reconstructor.onnx"
_TOLD = {
    "counts": "(n, h, w) int32, the rows that each window was measured with; y is 0 beyond them",
    "noise": "(m,) float32, the deviation of each row's errors in pixel values",
}


def write(imager: Imager, vectors: Vectors, folder: Path) -> Outcome:
    """Write both models and compare them with torch."""
    onnx.save(sensor_model(imager.patterns), folder / _SENSOR)
    onnx.save(reconstructor_model(imager), folder / _RECONSTRUCTOR)
    sizes = _sizes(imager.geometry)
    difference = max(_compare(imager, folder, size) for size in sizes)
    if not difference <= LARGEST_DIFFERENCE:
        raise TersenseError(
            f"onnxruntime's reconstruction differs from torch's by {difference:.3g} of a pixel's "
            f"value, more than {LARGEST_DIFFERENCE}; nothing was exported"
        )
    checked = ", ".join(f"{width}×{height}" for height, width in sizes)
    runtime = f"onnxruntime {onnxruntime.__version__}"
    details = {
        "opset": OPSET,
        _SENSOR: {"image": "(n, height, width) uint8", "y": "(n, m, h, w) int32"},
        _RECONSTRUCTOR: {
            "y": "(n, m, h, w) float32",
            "inside": "(height, width) uint8, all 1",
            **(_TOLD if imager.reconstructor.any_count else {}),
            "image": "(n, height, width) float32, neither rounded nor clipped",
        },
        "checked": {"runtime": runtime, "sizes": sizes, "largest_difference": difference},
    }
    facts = {
        "checked with": f"{runtime}, images of {checked}",
        "sensor": "equal to torch, every measurement",
        "reconstructor": f"differs from torch by {difference:.2g} of a pixel's value at most",
    }
    values = {
        "rows": len(imager.patterns),
        "stride": imager.geometry.stride,
        "opset": OPSET,
        "runtime": runtime,
        "sizes": checked,
        "difference": f"{difference:.2g}",
        "sensor_bytes": f"{(folder / _SENSOR).stat().st_size:,}",
        "reconstructor_bytes": f"{(folder / _RECONSTRUCTOR).stat().st_size:,}",
        "weights": f"{imager.parameters:,}",
        "told": "",
        "inputs": "",
    }
    if imager.reconstructor.any_count:
        values["told"] = "\nIt is told: " + "; ".join(f"`{k}`, {what}" for k, what in _TOLD.items())
        values["inputs"] = (
            ',\n              "counts": numpy.full((1, *y.shape[2:]), y.shape[1], numpy.int32),'
            '\n              "noise": numpy.zeros(y.shape[1], numpy.float32)'
        )
    return Outcome(details, facts, fill_guide("onnx", values))


def sensor_model(patterns: Patterns) -> "onnx.ModelProto":
    """Return the sensor: images uint8 in, exact integers out.

    Zeros around the image make the ⌈H/S⌉×⌈W/S⌉ windows: with `offset` before it and W − 1 −
    `offset` behind it, as many strides fit as there are windows, whatever the size. Φ is stored as
    Φ + 1 with a zero point of 1, because few runtimes convolve unsigned with signed integers.
    """
    make, kinds = onnx.helper, onnx.TensorProto
    window, stride = patterns.window, patterns.stride
    before = Geometry(window, stride).offset
    behind = window - 1 - before
    graph = make.make_graph(
        [
            make.make_node("Unsqueeze", ["image", "channel"], ["gray"]),
            make.make_node(
                "ConvInteger",
                ["gray", "phi plus one", "black", "one"],
                ["y"],
                strides=[stride, stride],
                pads=[before, before, behind, behind],
            ),
        ],
        "tersense sensor",
        [make.make_tensor_value_info("image", kinds.UINT8, ["n", "height", "width"])],
        [make.make_tensor_value_info("y", kinds.INT32, ["n", len(patterns), "h", "w"])],
        [
            onnx.numpy_helper.from_array(
                (patterns.phi[:, None] + 1).astype(np.uint8), "phi plus one"
            ),
            onnx.numpy_helper.from_array(np.array(0, np.uint8), "black"),
            onnx.numpy_helper.from_array(np.array(1, np.uint8), "one"),
            onnx.numpy_helper.from_array(np.array([1]), "channel"),
        ],
    )
    model = make.make_model(
        graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _FromMeasurements(nn.Module):
    """All that is done with y, as one network."""

    def __init__(self, imager: Imager) -> None:
        super().__init__()
        self.camera = imager.camera

    def forward(
        self, y: Tensor, inside: Tensor, counts: Tensor | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Reconstruct pixels (N, H, W) from y (N, m, h, w) and ones (H, W)."""
        size = (inside.shape[0], inside.shape[1])
        ones = self.camera.operator.forward(inside.float())
        deviation = None if noise is None else noise[None, :, None, None]
        return self.camera.reconstruct_part(y, ones, size, None, counts, deviation)


def reconstructor_model(imager: Imager) -> "onnx.ModelProto":
    """Return the reconstructor, any that is written in operations which torch can export."""
    stride, free = imager.geometry.stride, torch.export.Dim.DYNAMIC
    size = 5 * stride - stride // 2, 7 * stride - stride // 3  # no special case of anything
    rows, device = len(imager.patterns), imager.device
    example = {
        "y": torch.zeros(2, rows, 5, 7, device=device),
        "inside": torch.ones(size, dtype=torch.uint8, device=device),
    }
    sizes = {"y": ["n", "", "h", "w"], "inside": ["height", "width"]}
    if imager.reconstructor.any_count:
        example["counts"] = torch.ones(2, 5, 7, dtype=torch.int32, device=device)
        example["noise"] = torch.zeros(rows, device=device)
        sizes |= {"counts": ["n", "h", "w"], "noise": [""]}
    dynamic = {name: {k: free for k, size in enumerate(sizes[name]) if size} for name in sizes}
    try:
        with torch.no_grad(), _quiet():
            module = _FromMeasurements(imager)
            module(**example)  # what it computes once and keeps becomes a constant
            program = torch.export.export(
                module,
                (),
                example,
                dynamic_shapes=dynamic,
                prefer_deferred_runtime_asserts_over_guards=True,  # that h is ⌈H/S⌉
            )
            exported: Any = torch.onnx.export(
                program, dynamo=True, opset_version=OPSET, verbose=False
            )
    except Exception as error:  # an exporter meets anything
        name = imager.reconstructor.registered_name
        raise TersenseError(
            f"torch cannot export the reconstructor {name}: {one_line(_cause(error))}"
        ) from error
    model: onnx.ModelProto = exported.model_proto
    _strip(model.graph)
    _name(model.graph, sizes, {"image": ["n", "height", "width"]})
    onnx.checker.check_model(model, full_check=True)
    return model


def _cause(error: BaseException) -> BaseException:
    """Return what an error began with; torch wraps it in advice for its own developers."""
    while error.__cause__:
        error = error.__cause__
    return error


def _strip(graph: Any) -> None:
    """Remove what torch notes about its own work, with paths of this computer."""
    del graph.value_info[:], graph.metadata_props[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del item.metadata_props[:]
        item.doc_string = ""


def _name(graph: Any, inputs: dict[str, list[str]], outputs: dict[str, list[str]]) -> None:
    """Give outputs and the free sizes names that a person understands."""
    renamed = {old.name: new for old, new in zip(graph.output, outputs, strict=True)}
    for node in graph.node:
        for k, name in enumerate(node.output):
            node.output[k] = renamed.get(name, name)
    for value in graph.output:
        value.name = renamed[value.name]
    values, sizes = (*graph.input, *graph.output), (*inputs.values(), *outputs.values())
    for value, names in zip(values, sizes, strict=True):
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=True):
            if name:
                dimension.dim_param = name


def _sizes(geometry: Geometry) -> list[tuple[int, int]]:
    """Return a size of whole strides, one that is not, and that of one window."""
    stride = geometry.stride
    return [(4 * stride, 6 * stride), (3 * stride + stride // 2, 5 * stride + 1), (stride, stride)]


def _compare(imager: Imager, folder: Path, size: tuple[int, int]) -> float:
    """Sense and reconstruct a real image with both; return the largest difference."""
    image = photograph(*size)
    y = imager.sense(image)
    (sensed,) = run_model(folder / _SENSOR, image=image[None])
    if not np.array_equal(sensed[0], y.values):
        raise TersenseError("onnxruntime's measurements differ from torch's; nothing was exported")
    if imager.reconstructor.any_count:  # every window with another count, and errors
        grid, m = imager.geometry.grid(*size), len(imager.patterns)
        counts = (m - 1 - np.arange(grid[0] * grid[1]) * 7 % m).reshape(grid)
        y = imager.sense(image, noise=_TRIAL_NOISE, counts=counts)
    (again,) = run_model(folder / _RECONSTRUCTOR, **model_inputs(imager, y))
    return float(np.abs(again[0] - imager.estimate(y)).max())


def model_inputs(imager: Imager, y: Measurements) -> dict[str, NDArray[Any]]:
    """Return what the exported reconstructor of a camera takes, given measurements of all rows."""
    header, readout = y.header, y.header.readout
    values = readout.values(y.values).astype(np.float32).reshape(-1, *header.shape[-3:])
    inputs: dict[str, NDArray[Any]] = {
        "y": values,
        "inside": np.ones((header.height, header.width), np.uint8),
    }
    if not imager.reconstructor.any_count:
        return inputs
    counts = np.full(values.shape[-2:], header.rows) if y.counts is None else y.counts
    of_channels = np.broadcast_to(counts, (len(values), *values.shape[-2:]))
    noise = np.broadcast_to(readout.deviation, (header.rows, 1, 1)).reshape(-1)
    return inputs | {"counts": of_channels.astype(np.int32), "noise": noise.astype(np.float32)}


def run_model(path: Path, **inputs: Any) -> Any:
    """Run an exported model with onnxruntime."""
    try:
        return onnxruntime.InferenceSession(path).run(None, inputs)
    except Exception as error:  # onnxruntime's own exceptions have nothing in common
        raise TersenseError(f"onnxruntime cannot run {path.name}: {one_line(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's exporter from talking about itself."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        # Of what it cannot export, it prints the whole graph before it says so.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
