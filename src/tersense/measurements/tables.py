"""Read what a real camera measured: a table of numbers, and a manifest that says what they mean.

A table is a `.npy` or `.csv` file. NaN (or an empty cell) is a measurement that is missing. It has
one of these shapes:

- windows × rows: one line per window, one number per row of Φ, as the exported C program prints it;
- (m, h, w), or (3, m, h, w) in color, as `Measurements.values` (`.npy` only);
- exposures × detectors, if the manifest is that of `tersense export patterns`.

The manifest is that of any export of the camera. An entry `measured`, added by hand, tells what
differs from the plain case:

    "measured": {
      "height": 300, "width": 451,         the image's size
      "gain": 2.0, "offset": 12.5,         a number is gain · y + offset; also lists, with one
                                           value for each row of Φ in the table, or detector
      "noise": 3.5,                        standard deviation of a number's error; also a list
      "row_order": [5, 0, 2],              the rows of Φ in the table's columns; others are missing
      "column_major": true,                windows are counted down first; or
      "window_order": [0, 2],              the windows in the table's lines; others are missing
      "missing_rows": [17]                 rows not to be trusted
    }

The first line of a CSV file may tell the size as well: `# height=300 width=451`. The export itself
tells the depth of the pixels, and whether the camera gives codes of few bits: in what steps.

A camera that was exported with a coder gives a `.rice` file instead, which `rice` decodes.
"""

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError, one_line
from tersense.io.files import read_npy, read_text, require_file
from tersense.io.schema import at_least, build
from tersense.measurements.exposures import Plan
from tersense.measurements.manifest import NAME, Manifest
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.rice import RiceCoder
from tersense.measurements.tsm import PACKED, Header
from tersense.sensing.geometry import Geometry

CODED = ".rice"
SUFFIXES = (".npy", ".csv", CODED)
_MAX_BYTES = 2**30  # of a CSV file or a coded one
_LISTED = ", ".join(SUFFIXES[:-1]) + f" or {SUFFIXES[-1]}"
_SIZE = re.compile(r"#.*\bheight=(\d+)\s+width=(\d+)")
_EMPTY_CELL = re.compile(r"(?:(?<=,)|^)\s*(?=,|$)")

Values = NDArray[np.float64]


@dataclass(frozen=True)
class TableLayout:
    """How a table differs from the plain case; see the module. Nothing means the plain case."""

    height: int = 0
    width: int = 0
    gain: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)
    noise: tuple[Annotated[float, at_least(0)], ...] = (0.0,)
    row_order: tuple[int, ...] = ()
    window_order: tuple[int, ...] = ()
    column_major: bool = False
    missing_rows: tuple[int, ...] = ()

    def calibrate(self, numbers: Values) -> Values:
        """Turn numbers of a table (…, rows or detectors) into y."""
        gain, offset = (self._values(name, numbers.shape[-1]) for name in ("gain", "offset"))
        if not gain.all():
            raise TersenseError("a gain of 0 measures nothing; mark the row as missing")
        calibrated: Values = (numbers - offset) / gain
        return calibrated

    def variances(self, numbers: Values) -> Values:
        """Return the variances of what `calibrate` gives."""
        gain, noise = (self._values(name, numbers.shape[-1]) for name in ("gain", "noise"))
        return np.broadcast_to((noise / gain) ** 2, numbers.shape)

    def _values(self, name: str, count: int) -> Values:
        values = np.array(getattr(self, name))
        if len(values) not in (1, count):
            raise TersenseError(f"{name} has {len(values)} values; give one, or {count}")
        return values


def find_tables(folder: Path) -> list[Path]:
    """List the tables of a folder and of those below it, in name order."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise TersenseError(f"no tables ({_LISTED}) in {folder}")
    return found


def read_measured(
    table: str | Path, manifest: str | Path, size: tuple[int, int] | None = None
) -> Measurements | MeasuredValues:
    """Read a table of measurements.

    Args:
        table: A `.npy`, `.csv` or `.rice` file.
        manifest: The manifest of an export of the camera, or its folder.
        size: (H, W) of the image, if neither table nor manifest tells it.

    Returns:
        What `Imager.reconstruct` takes: exact `Measurements` if every number is there, whole and
        without noise, `MeasuredValues` otherwise.
    """
    try:
        about = Manifest.read(manifest, check_files=False)
        layout = _read_layout(Path(manifest))
        if Path(table).suffix.lower() == CODED:
            return _read_coded(Path(table), about, layout, size)
        numbers, own_size = read_table(Path(table))
        return _interpret(numbers, about, layout, size or own_size)
    except ValueError as error:
        message = one_line(error)
        named = str(table) in message or str(manifest) in message
        raise TersenseError(message if named else f"{table}: {message}") from error


def _read_layout(path: Path) -> TableLayout:
    path = path / NAME if path.is_dir() else path
    content = json.loads(read_text(path)).get("measured", {})
    if isinstance(content, dict):
        lists = {key: [content[key]] for key in ("gain", "offset", "noise")
                 if isinstance(content.get(key), (int, float))}  # fmt: skip
        content = {key: value for key, value in (content | lists).items() if value != []}
    return build("measured", TableLayout, content)


def read_table(path: Path) -> tuple[Values, tuple[int, int] | None]:
    """Return the numbers of a table, and the image's size if the table tells it."""
    try:
        if path.suffix.lower() == ".npy":
            numbers, size = read_npy(path), None
        elif path.suffix.lower() == ".csv":
            numbers, size = _read_csv(read_text(path, _MAX_BYTES))
        else:
            raise TersenseError(f"{path} is no table; give a file ending in {_LISTED}")
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror or one_line(error)}") from error
    except (ValueError, EOFError) as error:
        if isinstance(error, TersenseError):
            raise
        raise TersenseError(f"{path} is not a readable table: {one_line(error)}") from error
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "iuf" or not numbers.size:
        raise TersenseError(f"{path} holds no table of numbers")
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and is refused later
        return numbers.astype(np.float64), size


def _read_csv(text: str) -> tuple[Values, tuple[int, int] | None]:
    found = _SIZE.match(text)
    size = (int(found[1]), int(found[2])) if found else None
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    if not lines:
        return np.empty((0, 0)), size
    complete = "\n".join(_EMPTY_CELL.sub("nan", line) for line in lines)
    return np.loadtxt(io.StringIO(complete), delimiter=",", ndmin=2), size


def _interpret(
    numbers: Values, about: Manifest, layout: TableLayout, size: tuple[int, int] | None
) -> Measurements | MeasuredValues:
    """Turn the numbers of a table into measurements."""
    geometry = Geometry(about.window, about.stride)
    size = size or ((layout.height, layout.width) if layout.height else None)
    if about.kind == "patterns":
        plan = _plan(about)
        size = plan.height, plan.width
        y, variances = _from_readings(numbers, plan, layout)
    elif numbers.ndim == 2:
        size = known = _known(size)
        y, variances = (_from_windows(numbers, geometry, about.rows, layout, known, turn)
                        for turn in (layout.calibrate, layout.variances))  # fmt: skip
    else:
        y, variances = (_from_array(numbers, about.rows, layout, turn)
                        for turn in (layout.calibrate, layout.variances))  # fmt: skip
        size = size or (y.shape[-2] * about.stride, y.shape[-1] * about.stride)
    y[..., _checked(layout.missing_rows, about.rows, "missing_rows"), :, :] = np.nan
    header = _header(about, size, "L" if y.ndim == 3 else "RGB")
    return _tell_errors(y, variances if any(layout.noise) else None, header, _readout_of(about))


def _header(about: Manifest, size: tuple[int, int], mode: Literal["L", "RGB"]) -> Header:
    return Header(
        *size, mode, about.window, about.stride, about.rows, about.phi, depth=about.pixel_bits
    )


def _read_coded(
    path: Path, about: Manifest, layout: TableLayout, size: tuple[int, int] | None
) -> Measurements:
    """Read the stream that an exported coder wrote: the camera's own numbers, in its own order."""
    height, width = _known(size or ((layout.height, layout.width) if layout.height else None))
    if layout != TableLayout(height=layout.height, width=layout.width):
        raise TersenseError("a coded stream needs no calibration or order; leave `measured` out")
    coder = RiceCoder.from_details(about.details.get("coder"), about.rows)
    require_file(path, _MAX_BYTES)
    grid = Geometry(about.window, about.stride).grid(height, width)
    try:
        values, counts = coder.decode(path.read_bytes(), grid)
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror or one_line(error)}") from error
    readout = _readout_of(about)
    if np.abs(values.astype(np.int64)).max() > readout.largest_code:
        raise TersenseError(f"the stream is damaged: codes have {readout.bits} bits, one has more")
    header = _header(about, (height, width), "L")
    version = PACKED if readout.bits else header.version
    return Measurements(values, replace(header, readout=readout, version=version), counts)


def _tell_errors(
    y: Values, variances: Values | None, header: Header, readout: Readout
) -> Measurements | MeasuredValues:
    """Return integers as the camera's own codes, and everything else as sums with their errors."""
    whole = not np.isnan(y).any() and (y == np.rint(y)).all()
    if variances is None and whole and np.abs(y).max() <= readout.largest_code:
        version = PACKED if readout.bits else header.version
        return Measurements(y.astype(np.int32), replace(header, readout=readout, version=version))
    if variances is None and readout.exact:
        return MeasuredValues(y, header)
    known = 0.0 if variances is None else np.nan_to_num(variances) * readout.unit**2
    deviation = np.sqrt(known + readout.deviation**2)
    return MeasuredValues(readout.values(y), header, np.asarray(deviation))


def _readout_of(about: Manifest) -> Readout:
    """Return what the camera's numbers are: codes, where its export has a quantizer."""
    quantizer = about.details.get("quantizer")
    if quantizer is None:
        return Readout()
    try:
        steps = tuple(quantizer["steps"]) if "steps" in quantizer else (quantizer["step"],)
        rows = about.rows if "steps" in quantizer else 1
        if quantizer["bits"] and len(steps) == rows and not any(step % 1 for step in steps):
            bits, whole = quantizer["bits"], tuple(map(float, steps))
            offsets = tuple(quantizer.get("offsets", ()))
            one = rows == 1 and not offsets
            return Readout(bits, whole[0]) if one else Readout(bits, steps=whole, offsets=offsets)
    except (KeyError, TypeError, ValueError):
        pass  # told below, whatever it is
    raise TersenseError(f"the manifest has no usable steps of its quantizer: {quantizer!r:.80}")


def _known(size: tuple[int, int] | None) -> tuple[int, int]:
    if size is None:
        raise TersenseError(
            "the size of the image is not known; say --size, or begin the CSV file with "
            "`# height=… width=…`, or put height and width into `measured` of the manifest"
        )
    return size


def _from_windows(
    numbers: Values, geometry: Geometry, m: int, layout: TableLayout, size: tuple[int, int],
    turn: Callable[[Values], Values],
) -> Values:  # fmt: skip
    """Turn a table windows × rows into y, or its variances, (m, h, w)."""
    h, w = geometry.grid(*size)
    if layout.window_order and layout.column_major:
        raise TersenseError("column_major and window_order both tell the order; leave one out")
    raster = np.arange(h * w).reshape(h, w)
    order = (raster.T if layout.column_major else raster).ravel().tolist()
    windows = _checked(layout.window_order, h * w, "window_order") or order
    rows = _checked(layout.row_order, m, "row_order") or list(range(m))
    expected = len(windows), len(rows)
    if numbers.shape != expected:
        found = " × ".join(map(str, numbers.shape))
        hint = "; it is the other way round" if numbers.shape == expected[::-1] else ""
        raise TersenseError(
            f"an image of {size[1]}×{size[0]} pixels gives a table of {expected[0]} windows × "
            f"{expected[1]} rows, not {found}{hint}"
        )
    y = np.full((m, h * w), np.nan)
    y[np.ix_(rows, windows)] = turn(numbers).T
    return y.reshape(m, h, w)


def _from_array(
    numbers: Values, m: int, layout: TableLayout, turn: Callable[[Values], Values]
) -> Values:
    """Turn an array (rows, h, w) or (3, rows, h, w) into y, or its variances."""
    _refuse_orders(layout, ("window_order", "column_major"), "the shape of the table")
    rows = _checked(layout.row_order, m, "row_order") or list(range(m))
    color = numbers.shape[:-3]
    if numbers.ndim < 3 or color not in ((), (3,)) or numbers.shape[-3] != len(rows):
        raise TersenseError(
            f"a table is windows × rows, or ({len(rows)}, h, w), or (3, {len(rows)}, h, w) in "
            f"color, not {numbers.shape}"
        )
    y = np.full((*color, m, *numbers.shape[-2:]), np.nan)
    y[..., rows, :, :] = np.moveaxis(turn(np.moveaxis(numbers, -3, -1)), -1, -3)
    return y


def _plan(about: Manifest) -> Plan:
    try:
        return Plan(**about.details["plan"])
    except (KeyError, TypeError) as error:
        raise TersenseError("the manifest has no usable plan of the exposures") from error


def _from_readings(numbers: Values, plan: Plan, layout: TableLayout) -> tuple[Values, Values]:
    """Turn a table exposures × detectors into y and its variances."""
    orders = "row_order", "window_order", "column_major", "height", "width"
    _refuse_orders(layout, orders, "the plan of the exposures")
    y, variances = plan.measurements(layout.calibrate(numbers)), layout.variances(numbers).copy()
    variances[1::2] *= -1  # readings are subtracted, their variances add up
    return y, plan.measurements(variances) / plan.scale**2


def _refuse_orders(layout: TableLayout, names: tuple[str, ...], who: str) -> None:
    for name in names:
        if getattr(layout, name):
            raise TersenseError(f"{who} tells this already; leave {name} out of `measured`")


def _checked(numbers: tuple[int, ...], count: int, name: str) -> list[int]:
    """Return a list of rows or windows that names each at most once."""
    if len(set(numbers)) != len(numbers) or not all(0 <= k < count for k in numbers):
        raise TersenseError(f"{name} must name numbers from 0 to {count - 1}, each at most once")
    return list(numbers)
