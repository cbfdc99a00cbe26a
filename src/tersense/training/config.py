"""Settings of a training: a TOML file, checked key by key."""

import difflib
import json
import math
import sys
import tomllib
import typing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError, one_line
from tersense.io.files import read_text
from tersense.sensing.ternary import SELECTIONS, rows_for_rate

T = typing.TypeVar("T")


@dataclass(frozen=True)
class SensingConfig:
    """The camera.

    Args:
        window: W, the side of a pattern in pixels.
        stride: S, how far apart the windows lie; equal to `window` for blocks.
        rate: R, measurements a pixel; m = ⌊R·S²⌋.
        density: γ, the share of non-zero weights; K = ⌊γ·W²⌋.
        selection: Where `top_k_select` looks for the largest: column, row or matrix of Θ.
        kind: ternary (learned, Algorithm 1), random (ternary, never learned), fixed (the user's
            `patterns`) or float (dense, learned: a baseline without a model file).
        patterns: A `.npy` or `.mat` file with patterns of your own (see `fixed`). They decide
            window, rate and density, and only the reconstructor is trained.
        scale: alpha (the mean magnitude, as in the paper) or learned (a weight a pattern).
    """

    window: int = 32
    stride: int = 32
    rate: float = 0.25
    density: float = 0.05
    selection: str = "column"
    kind: str = "ternary"
    patterns: str = ""
    scale: str = "alpha"


@dataclass(frozen=True)
class DataConfig:
    """The pictures.

    Args:
        train: A folder of images, or an HDF5 file with a dataset `patches`. `package:NAME/PATH`
            is a folder inside an installed Python package.
        validation: A folder of images to measure PSNR on while training; empty for none.
        cache: A folder for the packed pictures, used as a memory-mapped file; empty to keep them
            in memory.
        crop: Side of the training pictures in pixels.
        samples: Crops in an epoch; 0 takes one from every picture.
        fresh: Draw new crops every epoch instead of shuffling the same ones.
        augment: Turn and mirror crops at random.
    """

    train: str = ""
    validation: str = ""
    cache: str = ""
    crop: int = 32
    samples: int = 5_000_000
    fresh: bool = False
    augment: bool = False


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation.

    Args:
        out: The run folder.
        epochs: Passes over `data.samples` crops.
        seconds: Stop after this time at the latest; 0 for no limit.
        start: A model to begin with: its reconstructor, and its patterns where they fit.
        batch: Crops a step.
        optimizer: adam, or muon (for the reconstructor's weight matrices; see `muon`).
        loss: squared (summed over a crop, the paper's), charbonnier (a smooth absolute error) or
            log (its logarithm: low rates of a nested camera, with their large errors, count no more
            than high ones).
        lr: Learning rate; the same for Adam and Muon.
        lr_patterns: Learning rate of the patterns, where it is another; 0 for the same.
        schedule: steps (see `lr_decay`) or cosine (falls to zero by the last epoch, or by the time
            limit where that comes first).
        lr_decay: Factor on the learning rate every `lr_decay_epochs`.
        lr_decay_epochs: See `lr_decay`.
        warmup: Steps over which the learning rate rises to `lr`.
        clip: Largest norm of the gradient; 0 for no limit.
        freeze_epochs: Epochs after which the patterns stay as they are while the reconstructor
            goes on learning; 0 for never.
        l2: Weight of ½·Σw² over the reconstructor's weight matrices, added to the loss.
        seed: Of everything random.
        device: auto, cpu or cuda.
        precision: auto (bfloat16 on a GPU, float32 on a CPU), float32 or bfloat16.
        compile: Let torch compile the step (pays on a GPU in long runs).
        validate_epochs: Epochs between validations.
        checkpoint_epochs: Epochs between checkpoints.
    """

    out: str = "runs/paper"
    epochs: int = 50
    seconds: float = 0.0
    start: str = ""
    batch: int = 5000
    optimizer: str = "adam"
    loss: str = "squared"
    lr: float = 0.01
    lr_patterns: float = 0.0
    schedule: str = "steps"
    lr_decay: float = 0.6
    lr_decay_epochs: int = 5
    warmup: int = 0
    clip: float = 0.0
    freeze_epochs: int = 0
    l2: float = 0.0
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    compile: bool = False
    validate_epochs: int = 5
    checkpoint_epochs: int = 5


@dataclass(frozen=True)
class Config:
    """All settings of a training; `reconstructor` holds its `name` and its own options."""

    sensing: SensingConfig = field(default_factory=SensingConfig)
    reconstructor: dict[str, Any] = field(default_factory=lambda: {"name": "mlp"})
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


def read_config(path: str | Path, changes: list[str] | None = None) -> Config:
    """Read a TOML file and apply `key=value` changes such as `train.lr=0.001`."""
    text = read_text(path)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise TersenseError(f"{path} is not a TOML file: {one_line(error)}") from error
    for change in changes or []:
        _apply(tables, change)
    return build_config(tables)


def build_config(tables: dict[str, Any]) -> Config:
    """Check tables of settings and turn them into a `Config`."""
    _refuse_unknown("section", tables, [f.name for f in fields(Config)])
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise TersenseError(f"{name} is a section of settings; write [{name}] above its keys")
    return _check(
        Config(
            sensing=build_section("sensing", SensingConfig, tables.get("sensing", {})),
            reconstructor=_check_reconstructor(tables.get("reconstructor", {})),
            data=build_section("data", DataConfig, tables.get("data", {})),
            train=build_section("train", TrainConfig, tables.get("train", {})),
        )
    )


def build_section(name: str, cls: type[T], values: dict[str, Any]) -> T:
    """Build one section's dataclass; refuse unknown keys and wrong types."""
    if not isinstance(values, dict):
        raise TersenseError(f"[{name}] holds settings by name, not {values!r}")
    hints = typing.get_type_hints(cls)
    _refuse_unknown(f"setting in [{name}]", values, list(hints))
    checked = {key: _convert(f"{name}.{key}", value, hints[key]) for key, value in values.items()}
    return cls(**checked)


def write_toml(config: Config) -> str:
    """Return the settings as TOML, every one of them."""
    return "\n".join(write_toml_table(name, table) for name, table in asdict(config).items())


def write_toml_table(name: str, table: dict[str, Any]) -> str:
    """Return one section as TOML."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _apply(tables: dict[str, Any], change: str) -> None:
    """Put one `section.key=value` into the tables; what is no TOML value is taken as text."""
    key, equals, text = change.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (equals and dot and name):
        raise TersenseError(f"{change!r} is not section.key=value, as in train.epochs=10")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    table = tables.setdefault(section, {})
    if isinstance(table, dict):
        table[name] = value


def _check_reconstructor(table: dict[str, Any]) -> dict[str, Any]:
    """Fill in and check the options of the reconstructor that is named."""
    from tersense.reconstruction.base import find_reconstructor

    options = dict(table)
    name = options.pop("name", "mlp")
    if not isinstance(name, str):
        raise TersenseError(f"reconstructor.name is text, not {name!r}")
    checked = build_section("reconstructor", find_reconstructor(name).Options, options)
    return {"name": name, **asdict(checked)}


def _check(config: Config) -> Config:
    """Refuse values that no training can use."""
    config = replace(config, sensing=_take_patterns(config.sensing))
    sensing, data, train = config.sensing, config.data, config.train
    _require(1 <= sensing.stride <= sensing.window, "sensing.stride", sensing.stride,
             f"from 1 to sensing.window = {sensing.window}")  # fmt: skip
    fixed = sensing.kind == "fixed"  # there the rate is a fact; pairs of mirror patterns exceed 1
    _require(0 < sensing.rate <= 1 or fixed, "sensing.rate", sensing.rate, "above 0 and at most 1")
    _require(0 < sensing.density <= 1, "sensing.density", sensing.density, "above 0 and at most 1")
    _require(sensing.selection in SELECTIONS, "sensing.selection", sensing.selection,
             "one of " + ", ".join(SELECTIONS))  # fmt: skip
    _require(sensing.kind in ("ternary", "random", "float", "fixed"), "sensing.kind", sensing.kind,
             "ternary, random, float or fixed")  # fmt: skip
    _require(sensing.scale in ("alpha", "learned"), "sensing.scale", sensing.scale,
             "alpha or learned")  # fmt: skip
    _require(data.crop >= 1, "data.crop", data.crop, "at least 1")
    _require(data.samples >= 0, "data.samples", data.samples, "at least 0")
    _require(train.batch >= 2, "train.batch", train.batch, "at least 2 (batch statistics)")
    for name in ("epochs", "lr_decay_epochs", "validate_epochs", "checkpoint_epochs"):
        _require(getattr(train, name) >= 1, f"train.{name}", getattr(train, name), "at least 1")
    for name in ("lr", "lr_decay"):
        value = getattr(train, name)
        _require(0 < value < math.inf, f"train.{name}", value, "above 0 and finite")
    for name in ("seconds", "lr_patterns", "freeze_epochs", "warmup", "clip", "l2", "seed"):
        value = getattr(train, name)
        _require(0 <= value < math.inf, f"train.{name}", value, "at least 0 and finite")
    _require(train.optimizer in ("adam", "muon"), "train.optimizer", train.optimizer,
             "adam or muon")  # fmt: skip
    _require(train.loss in ("squared", "charbonnier", "log"), "train.loss", train.loss,
             "squared, charbonnier or log")  # fmt: skip
    _require(train.schedule in ("steps", "cosine"), "train.schedule", train.schedule,
             "steps or cosine")  # fmt: skip
    _require(train.device in ("auto", "cpu", "cuda"), "train.device", train.device,
             "auto, cpu or cuda")  # fmt: skip
    _require(train.precision in ("auto", "float32", "bfloat16"), "train.precision",
             train.precision, "auto, float32 or bfloat16")  # fmt: skip
    _require(train.seed < 2**32, "train.seed", train.seed, "below 4,294,967,296")
    # State the rate that whole patterns really give.
    rows = rows_for_rate(sensing.rate, sensing.stride)
    return replace(config, sensing=replace(sensing, rate=rows / sensing.stride**2))


def _take_patterns(sensing: SensingConfig) -> SensingConfig:
    """Let the user's patterns, where there are some, decide what they decide."""
    if not sensing.patterns:
        _require(sensing.kind != "fixed", "sensing.kind", sensing.kind,
                 "ternary, random or float where sensing.patterns names no file")  # fmt: skip
        return sensing
    _require(sensing.kind in ("fixed", "ternary"), "sensing.kind", sensing.kind,
             "fixed where sensing.patterns names a file")  # fmt: skip
    from tersense.sensing.patterns import read_patterns

    own = read_patterns(sensing.patterns, sensing.stride)
    return replace(sensing, kind="fixed", window=own.window, rate=own.rate, density=own.density)


def _require(holds: bool, key: str, value: Any, allowed: str) -> None:
    if not holds:
        raise TersenseError(f"{key} = {value!r} is not possible; it must be {allowed}")


def _refuse_unknown(what: str, given: dict[str, Any], known: list[str]) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "there is: " + ", ".join(known)
            raise TersenseError(f"unknown {what}: {key}; {hint}")


def _convert(key: str, value: Any, hint: Any) -> Any:
    """Return the value if it has the wanted type; whole numbers pass as real ones."""
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if isinstance(value, (list, tuple)) and value:
            return tuple(_convert(key, item, inner) for item in value)
    elif hint is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    elif type(value) is hint:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise TersenseError(f"{key} must be {wanted.get(hint, 'a list')}, not {value!r}")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
