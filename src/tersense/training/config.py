"""The settings of a training run: a TOML file, checked key by key.

Types and bounds stand beside the fields; `io.schema` checks them. What one setting means for
another is checked in `build_config`.
"""

import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tersense.errors import TersenseError, one_line
from tersense.io.files import read_text
from tersense.io.schema import above, at_least, at_most, below, build, refuse_unknown, toml_table
from tersense.io.schema import require as require_setting
from tersense.measurements.readout import LEAST_PHOTONS, MOST_PHOTONS
from tersense.models.zoo import load
from tersense.reconstruction.base import find_reconstructor
from tersense.sensing.patterns import read_patterns, rows_for_rate
from tersense.sensing.ternary import Selection


@dataclass(frozen=True)
class SensingConfig:
    """The camera.

    Args:
        window: B, the side of a pattern in pixels.
        stride: S, how far apart the windows lie; equal to `window` for blocks.
        rate: R, the sampling ratio in measurements per pixel; m = ⌊R·S²⌋.
        density: γ, the fraction of non-zero weights; K = ⌊γ·B²⌋.
        selection: Where `top_k_select` looks for the largest: column, row or matrix of Θ.
        kind: ternary (learned, Algorithm 1), random (ternary, never learned), fixed (the user's
            `patterns`) or float (dense, learned: a baseline without a model file).
        patterns: A `.npy` or `.mat` file with patterns of your own (see `sensing.patterns`). They
            decide window, rate and density, and only the reconstructor is trained.
        scale: alpha (the mean magnitude, as in the paper) or learned (one weight per pattern).
    """

    window: Annotated[int, at_least(1)] = 32
    stride: Annotated[int, at_least(1)] = 32
    rate: Annotated[float, above(0)] = 0.25
    density: Annotated[float, above(0), at_most(1)] = 0.05
    selection: Selection = "column"
    kind: Literal["ternary", "random", "float", "fixed"] = "ternary"
    patterns: str = ""
    scale: Literal["alpha", "learned"] = "alpha"


@dataclass(frozen=True)
class DataConfig:
    """The dataset.

    Args:
        train: A folder of images, or an HDF5 file with a dataset `patches`. `package:NAME/PATH`
            is a folder inside an installed Python package.
        validation: A folder of images to measure PSNR on during training; empty for none.
        cache: A folder for the packed images, used as a memory-mapped file; empty to keep them
            in memory.
        crop: Side of the training crops in pixels.
        samples: Crops per epoch; 0 takes one from every image.
        fresh: Draw new crops every epoch instead of shuffling the same ones.
        augment: Rotate and mirror crops at random.
        scales: The sizes that every image of a folder is taken in, as shares of its own. Reduced
            images are sharper: photographs of several megapixels are smooth, pixel by pixel.
        balanced: Draw images, all equally likely, and then a crop; otherwise all crops are equally
            likely, and large images count most.
        held_out: Keep every so many-th image out of training, and log after each epoch the loss on
            its crops beside that on crops trained on; 0 for none.
    """

    train: str = ""
    validation: str = ""
    cache: str = ""
    crop: Annotated[int, at_least(1)] = 32
    samples: Annotated[int, at_least(0)] = 5_000_000
    fresh: bool = False
    augment: bool = False
    scales: tuple[Annotated[float, above(0), at_most(1)], ...] = (1.0,)
    balanced: bool = False
    held_out: Annotated[int, at_least(0)] = 0


@dataclass(frozen=True)
class TrainConfig:
    """The optimization.

    Args:
        out: The run folder.
        epochs: Passes over `data.samples` crops; 0 leaves the model `start` as it is, and only adds
            what `allocation` trains.
        seconds: Stop after this time at the latest; 0 for no limit.
        start: A model to begin with: its reconstructor, and its patterns where they fit.
        batch: Crops per step.
        optimizer: adam, or muon (for the reconstructor's weight matrices; see `optim`).
        loss: squared (summed over a crop, the paper's), charbonnier (a smooth absolute error), or
            the logarithm of the one or the other, log_squared and log: low rates of a nested model,
            with their large errors, count no more than high ones.
        lr: Learning rate; the same for Adam and Muon.
        lr_patterns: Learning rate of the patterns, where it is another; 0 for the same.
        schedule: steps (see `lr_decay`) or cosine (falls to zero by the last epoch, or by the time
            limit where that comes first).
        lr_decay: Factor on the learning rate every `lr_decay_epochs`.
        lr_decay_epochs: See `lr_decay`.
        warmup: Steps over which the learning rate rises to `lr`.
        clip: Largest norm of the gradient; 0 for no limit.
        freeze_epochs: Epochs after which the patterns are frozen while the reconstructor goes on
            learning; 0 for never.
        settle: Take the statistics of batch normalization anew for the patterns that are kept;
            false for running averages of the last steps, as in the authors' code.
        skew: Of the rates that a universal network is trained at: 1 draws their logarithms evenly,
            2 takes every second crop from the highest quarter of them.
        l2: Weight of ½·Σw² over the reconstructor's weight matrices, added to the loss.
        seed: Of everything random.
        device: auto, cpu or cuda.
        precision: auto (bfloat16 on a GPU, float32 on a CPU), float32 or bfloat16.
        compile: Let torch compile the step (pays on a GPU in long runs).
        validate_epochs: Epochs between validations.
        checkpoint_epochs: Epochs between checkpoints.
        allocation: Whether to train, after a universal network, the predictor that adaptive sensing
            decides by; see [allocation].
    """

    out: str = "runs/paper"
    epochs: Annotated[int, at_least(0)] = 50
    seconds: Annotated[float, at_least(0)] = 0.0
    start: str = ""
    batch: Annotated[int, at_least(2)] = 5000
    optimizer: Literal["adam", "muon"] = "adam"
    loss: Literal["squared", "charbonnier", "log", "log_squared"] = "squared"
    lr: Annotated[float, above(0)] = 0.01
    lr_patterns: Annotated[float, at_least(0)] = 0.0
    schedule: Literal["steps", "cosine"] = "steps"
    lr_decay: Annotated[float, above(0)] = 0.6
    lr_decay_epochs: Annotated[int, at_least(1)] = 5
    warmup: Annotated[int, at_least(0)] = 0
    clip: Annotated[float, at_least(0)] = 0.0
    freeze_epochs: Annotated[int, at_least(0)] = 0
    settle: bool = True
    skew: Annotated[float, above(0), at_most(10)] = 1.0
    l2: Annotated[float, at_least(0)] = 0.0
    seed: Annotated[int, at_least(0), below(2**32)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    validate_epochs: Annotated[int, at_least(1)] = 5
    checkpoint_epochs: Annotated[int, at_least(1)] = 5
    allocation: bool = False


@dataclass(frozen=True)
class ReadoutConfig:
    """Errors of measurements that a universal network is trained with, and told of.

    A third of the crops with errors get Gaussian noise, a third are rounded to one step, and a
    third to 4 to 10 bits, with a step for each pattern that suits its sums. In little light
    (`brightest` above 0) all of them have shot noise instead, and half of them Gaussian noise too.

    Args:
        share: Of the crops, those whose measurements have errors; 0 for none.
        lowest: Deviation of noise and of one step, in pixel values; log-uniform, for each crop.
        highest: See `lowest`; 4 bits over the full range of 64×64 windows have about 1,500.
        dimmest: Photons that a pixel of value 1 gives in an exposure; log-uniform, for each crop.
        brightest: See `dimmest`; 0 for light without shot noise.
    """

    share: Annotated[float, at_least(0), at_most(1)] = 0.0
    lowest: Annotated[float, above(0)] = 2.0
    highest: Annotated[float, above(0)] = 2000.0
    dimmest: Annotated[float, at_least(LEAST_PHOTONS), at_most(MOST_PHOTONS)] = LEAST_PHOTONS
    brightest: Annotated[float, at_least(0), at_most(MOST_PHOTONS)] = 0.0


@dataclass(frozen=True)
class AllocationConfig:
    """What adaptive sensing decides by, trained after the network where `train.allocation` says so.

    Args:
        seconds: At most so long; 0 for no limit.
        gathering: The share of that time in which the network's errors are measured.
        crops: On so many crops at most.
        crop: Side of these crops in pixels.
        batch: Crops at a time.
        steps: Of training the predictor, and of fitting the decision of a sensor, at most.
        channels: Its size.
        sensor_crops: Crops, of those above, that the integer decision of a sensor without a network
            is fitted to; 0 for none.
    """

    seconds: Annotated[float, at_least(0)] = 120.0
    gathering: Annotated[float, above(0), below(1)] = 0.6
    crops: Annotated[int, at_least(1)] = 8000
    crop: Annotated[int, at_least(1)] = 256
    batch: Annotated[int, at_least(1)] = 16
    steps: Annotated[int, at_least(1)] = 6000
    channels: Annotated[int, at_least(1), at_most(1024)] = 160
    sensor_crops: Annotated[int, at_least(0)] = 256


@dataclass(frozen=True)
class TeacherConfig:
    """A larger network that the reconstructor learns from (distillation).

    Args:
        model: Name or path of a trained model; empty for none. Its camera is taken over and does
            not change: Φ, and with it window, stride, rate and density.
        share: Of the loss, the part that is the distance to the teacher's reconstruction instead of
            that to the image.
        features: Weight of the distance to the teacher's last feature maps, where both networks are
            unrolled; 0 for none.
    """

    model: str = ""
    share: Annotated[float, at_least(0), at_most(1)] = 0.5
    features: Annotated[float, at_least(0)] = 0.0


@dataclass(frozen=True)
class Config:
    """All settings of a training run; `reconstructor` holds its `name` and its own options."""

    sensing: SensingConfig = field(default_factory=SensingConfig)
    reconstructor: dict[str, Any] = field(default_factory=lambda: {"name": "mlp"})
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    allocation: AllocationConfig = field(default_factory=AllocationConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)


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
    refuse_unknown("section", tables, [f.name for f in fields(Config)])
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise TersenseError(f"{name} is a section of settings; write [{name}] above its keys")
    config = Config(
        sensing=build("sensing", SensingConfig, tables.get("sensing", {})),
        reconstructor=_check_reconstructor(tables.get("reconstructor", {})),
        readout=build("readout", ReadoutConfig, tables.get("readout", {})),
        data=build("data", DataConfig, tables.get("data", {})),
        train=build("train", TrainConfig, tables.get("train", {})),
        allocation=build("allocation", AllocationConfig, tables.get("allocation", {})),
        teacher=build("teacher", TeacherConfig, tables.get("teacher", {})),
    )
    require_setting(
        not config.readout.share or config.reconstructor.get("universal", False),
        "readout.share", config.readout.share, "0 unless reconstructor.universal is true",
    )  # fmt: skip
    require_setting(
        not config.train.allocation or config.reconstructor.get("universal", False),
        "train.allocation", config.train.allocation,
        "false unless reconstructor.universal is true",
    )  # fmt: skip
    require_setting(
        config.train.epochs > 0 or (config.train.allocation and config.train.start != ""),
        "train.epochs", config.train.epochs,
        "at least 1, or 0 with train.allocation = true and train.start",
    )  # fmt: skip
    require_setting(
        config.readout.lowest <= config.readout.highest, "readout.lowest", config.readout.lowest,
        f"at most readout.highest = {config.readout.highest:g}",
    )  # fmt: skip
    require_setting(
        not 0 < config.readout.brightest < config.readout.dimmest,
        "readout.brightest", config.readout.brightest,
        f"0, or at least readout.dimmest = {config.readout.dimmest:g}",
    )  # fmt: skip
    if config.teacher.model:
        return replace(config, sensing=_taught_sensing(config))
    return replace(config, sensing=_check_sensing(config.sensing))


def write_toml(config: Config) -> str:
    """Return the settings as TOML, every one of them."""
    return "\n".join(toml_table(name, table) for name, table in asdict(config).items())


def _apply(tables: dict[str, Any], change: str) -> None:
    """Put one `section.key=value` into the tables; what is no TOML value is taken as text."""
    key, equals, text = change.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (equals and dot and name):
        raise TersenseError(f"a change must be section.key=value (train.epochs=10), got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    table = tables.setdefault(section, {})
    if isinstance(table, dict):
        table[name] = value


def _check_reconstructor(table: dict[str, Any]) -> dict[str, Any]:
    """Fill in and check the options of the reconstructor that is named."""
    options = dict(table)
    name = options.pop("name", "mlp")
    require_setting(isinstance(name, str), "reconstructor.name", name, "text")
    checked = build("reconstructor", find_reconstructor(name).Options, options)
    return {"name": name, **asdict(checked)}


def _check_sensing(sensing: SensingConfig) -> SensingConfig:
    """Refuse a camera that cannot be; state the rate that whole patterns really give."""
    if sensing.patterns:
        require_setting(
            sensing.kind in ("fixed", "ternary"), "sensing.kind", sensing.kind,
            "fixed where sensing.patterns names a file",
        )  # fmt: skip
        own = read_patterns(sensing.patterns, sensing.stride)
        sensing = replace(sensing, kind="fixed", window=own.window, rate=own.rate,
                          density=own.density)  # fmt: skip
    else:
        require_setting(
            sensing.kind != "fixed", "sensing.kind", sensing.kind,
            "ternary, random or float where sensing.patterns names no file",
        )  # fmt: skip
        # One's own patterns have the rate that they have: pairs for a mirror device exceed 1.
        require_setting(sensing.rate <= 1, "sensing.rate", sensing.rate, "at most 1")
    require_setting(
        sensing.stride <= sensing.window, "sensing.stride", sensing.stride,
        f"at most sensing.window = {sensing.window}",
    )  # fmt: skip
    rows = rows_for_rate(sensing.rate, sensing.stride)
    return replace(sensing, rate=rows / sensing.stride**2)


def _taught_sensing(config: Config) -> SensingConfig:
    """Return the teacher's camera; refuse a teacher that cannot do what its student learns."""
    teacher, ours = load(config.teacher.model), config.reconstructor
    sensing, theirs = config.sensing, teacher.reconstructor
    require_setting(
        sensing.kind in ("ternary", "fixed") and not sensing.patterns, "sensing.kind",
        sensing.patterns or sensing.kind, "that of teacher.model, without sensing.patterns",
    )  # fmt: skip
    require_setting(
        sensing.scale == "alpha", "sensing.scale", sensing.scale, "alpha, that of teacher.model"
    )
    universal = bool(ours.get("universal"))
    require_setting(
        universal == theirs.any_count, "reconstructor.universal", universal,
        f"{str(theirs.any_count).lower()}, as that of teacher.model = {config.teacher.model}",
    )  # fmt: skip
    require_setting(
        not ours.get("nested"), "reconstructor.nested", True,
        "false where there is a teacher; one model for all rates is universal",
    )  # fmt: skip
    require_setting(
        not universal or ours["lowest_rate"] >= theirs.lowest_rate,
        "reconstructor.lowest_rate", ours.get("lowest_rate"),
        f"at least {theirs.lowest_rate:g}, that of teacher.model = {config.teacher.model}",
    )  # fmt: skip
    require_setting(
        not config.teacher.features or ours["name"] == theirs.registered_name == "unrolled",
        "teacher.features", config.teacher.features, "0 unless both networks are unrolled",
    )  # fmt: skip
    own = teacher.patterns
    return replace(sensing, kind="fixed", window=own.window, stride=own.stride, rate=own.rate,
                   density=own.density)  # fmt: skip
