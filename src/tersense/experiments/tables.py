"""What the paper's tables consist of: the experiments, and the recipe of each."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tersense.errors import TersenseError
from tersense.runtime.device import choose_device
from tersense.training.config import Config, build_config

OWN, OVERLAPPING = "own geometry", "overlapping"
PROTOCOLS = {"own": (OWN,), "overlapping": (OVERLAPPING,), "both": (OWN, OVERLAPPING)}
RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
DENSITIES = (0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 1.0)
RANDOM, NOT_SPARSE = "random", "random, not sparse"
MODELS = ("paper-r25", "block-r25", "flex")  # whose Φ classical methods are given, too

# The paper's figures, on its own two test sets, overlapping windows every 2 pixels.
PUBLISHED_RATES = dict(zip(RATES, (25.24, 26.11, 26.65, 27.52, 27.96), strict=True))
PUBLISHED_DENSITIES = dict(
    zip(DENSITIES, (25.83, 26.96, 26.98, 27.61, 27.52, 27.40, 27.37), strict=True)
)
PUBLISHED_COMPARISON = {
    "ours": (27.61, 33.15),
    "O-NL-SDA": (26.96, 31.38),
    "BP, dense ternary": (21.93, 24.04),
}
_SDA: dict[str, dict[str, Any]] = {
    "sensing": {"kind": "float"},
    "reconstructor": {"name": "sda"},
    "train": {"lr": 0.001},
}
_METHODS: dict[Literal["bp", "tv"], str] = {"bp": "BP", "tv": "total variation"}


@dataclass(frozen=True)
class Experiment:
    """One row of a table.

    Args:
        name: Of its folder.
        label: In the table.
        settings: Changes to the paper's recipe, section by section.
        method: train, or a classical one: bp or tv.
        published: The paper's figures that belong to it, on its first and second test set.
        learned: Share of the training in which the patterns are learned; after it they stay.
        camera: Whose Φ a classical method is given: `RANDOM` (K non-zeros per pattern),
            `NOT_SPARSE` (random too, each value as likely), the name of a row that is trained, or
            that of a built-in model.
    """

    name: str
    label: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    method: Literal["train", "bp", "tv"] = "train"
    published: tuple[float | None, float | None] = (None, None)
    learned: float = 1.0
    camera: str = RANDOM

    @property
    def model(self) -> str:
        """The built-in model whose Φ is used; empty where it is another."""
        return self.camera if self.camera in MODELS else ""

    @property
    def needs(self) -> str:
        """The row that must be trained before this one; empty where there is none."""
        return "" if self.model or self.camera in (RANDOM, NOT_SPARSE) else self.camera


@dataclass(frozen=True)
class Options:
    """What a user chooses.

    Args:
        train: Folder of training images.
        tests: Folders of test images.
        out: Where results go.
        epochs: Budget of a training run; 50 in the paper.
        seconds: Another budget; 0 for none.
        stride: Of the overlapping protocol; 2 in the paper.
        parallel: Experiments side by side.
        device: auto, cpu or cuda.
        quick: Everything small: to see that it works, not to compare.
        only: Names of the rows to run; none for all.
        protocol: Which figures to measure: own, overlapping or both.
        seed: Of the training runs; results of different seeds lie side by side.
    """

    train: Path
    tests: tuple[Path, ...]
    out: Path
    epochs: int = 50
    seconds: float = 0.0
    stride: int = 2
    parallel: int = 1
    device: str = "auto"
    quick: bool = False
    only: tuple[str, ...] = ()
    protocol: str = "both"
    seed: int = 0

    def folder(self, experiment: Experiment | str) -> Path:
        """Return where the results of an experiment go."""
        name = experiment if isinstance(experiment, str) else experiment.name
        return self.out / (name + (f"-seed{self.seed}" if self.seed else ""))


def _learned(rate: float, density: float, **published: Any) -> Experiment:
    return Experiment(
        f"r{rate:g}-d{density:g}",
        f"R = {rate:g}, γ = {density:g}",
        {"sensing": {"rate": rate, "density": density}},
        **published,
    )


def _rates() -> list[Experiment]:
    return [_learned(r, 0.1, published=(p, None)) for r, p in PUBLISHED_RATES.items()]


def _sparsity() -> list[Experiment]:
    return [_learned(0.25, d, published=(p, None)) for d, p in PUBLISHED_DENSITIES.items()]


def _frozen(density: float, share: float, **published: Any) -> Experiment:
    """Return the experiment whose patterns stay as they are after a share of the training."""
    whole = _learned(0.25, density, **published)
    name = f"{whole.name}-frozen{share:g}"
    return replace(whole, name=name, label=f"{whole.label}, frozen", learned=share)


def _frozen_at_half() -> list[Experiment]:
    return [_frozen(d, 0.5, published=(p, None)) for d, p in PUBLISHED_DENSITIES.items()]


def _as_published() -> list[Experiment]:
    """Return Table 2 by the authors' code: running averages, none of our repair; and over-fitting.

    Every fiftieth photograph is held out, so that the loss on crops that were trained on can be
    compared with that on others of the same source.
    """
    changes: dict[str, dict[str, Any]] = {
        "reconstructor": {"eps": 0.001},
        "data": {"held_out": 50},
        "train": {"settle": False},
    }
    return [
        replace(e, name=f"{e.name}-unsettled", label=f"{e.label}, running averages",
                settings=e.settings | changes)
        for e in _sparsity()
    ]  # fmt: skip


def _sda_sweep() -> list[Experiment]:
    """Return O-NL-SDA with one setting changed at a time, then with the good changes together."""

    def changed(**values: float) -> Experiment:
        settings = dict(_SDA)
        for key, value in values.items():
            section = "train" if key == "lr" else "reconstructor"
            settings[section] = settings[section] | {key: value}
        words = ", ".join(f"{key} = {value:g}" for key, value in values.items())
        name = "-".join(["sda", *(f"{key}{value:g}" for key, value in values.items())])
        return Experiment(name, f"O-NL-SDA, {words}", settings)

    return [
        Experiment("sda-first", "O-NL-SDA, settings tried first", _SDA),
        *(changed(lr=rate) for rate in (0.0003, 0.003, 0.01)),
        *(changed(corruption=share) for share in (0.0, 0.3)),
        *(changed(pretrain_steps=steps) for steps in (0, 10_000)),
        _tuned_sda(),
        changed(corruption=0.0, pretrain_steps=30_000),
    ]


def _tuned_sda() -> Experiment:
    """Return O-NL-SDA with the best settings of the sweep."""
    tuned = _SDA["reconstructor"] | {"corruption": 0.0, "pretrain_steps": 10_000}
    published = PUBLISHED_COMPARISON["O-NL-SDA"]
    label = "O-NL-SDA (corruption = 0, pretrain_steps = 10000)"
    return Experiment("sda", label, _SDA | {"reconstructor": tuned}, published=published)


def _comparison() -> list[Experiment]:
    published = PUBLISHED_COMPARISON
    ours = replace(_learned(0.25, 0.05), label="ours (5 % ternary)", published=published["ours"])
    dense: dict[str, dict[str, Any]] = {"sensing": {"kind": "float"}}
    return [
        ours,
        Experiment("float", "dense float sensing, our network", dense),
        Experiment("random", "random 5 % ternary, our network", {"sensing": {"kind": "random"}}),
        _tuned_sda(),
        Experiment("bp-dense", "BP, random dense ternary", {"sensing": {"density": 2 / 3}}, "bp",
                   published["BP, dense ternary"], camera=NOT_SPARSE),
        *_classical("5", "random 5 % ternary", 0.25, RANDOM),
        *_classical("learned", "learned 5 % ternary (ours)", 0.25, ours.name),
        *_classical("paper-r25", "learned Φ of paper-r25", 0.25, "paper-r25"),
        *_classical("block-r25", "learned Φ of block-r25", 0.25, "block-r25"),
        *_classical("5-r10", "random 5 % ternary, R = 0.1", 0.1, RANDOM),
        *_classical("flex-r10", "learned Φ of flex, R = 0.1", 0.1, "flex"),
    ]  # fmt: skip


def _classical(name: str, matrix: str, rate: float, camera: str) -> list[Experiment]:
    """Return the rows of both classical methods with one Φ."""
    settings: dict[str, dict[str, Any]] = {"sensing": {"rate": rate}}
    return [
        Experiment(f"{method}-{name}", f"{title}, {matrix}", settings, method, camera=camera)
        for method, title in _METHODS.items()
    ]


def _ablations() -> list[Experiment]:
    return [
        replace(_learned(0.25, 0.05), label="the recipe: by column, ℓ2 off, α"),
        Experiment("by-row", "selected by row (pixel; 6 % fewer non-zeros)",
                   {"sensing": {"selection": "row"}}),
        Experiment("by-matrix", "selected over the matrix", {"sensing": {"selection": "matrix"}}),
        Experiment("l2", "ℓ2 = 0.001, as the paper states", {"train": {"l2": 0.001}}),
        Experiment("learned-scale", "a learned scale, not α", {"sensing": {"scale": "learned"}}),
        Experiment("fresh", "new patches every epoch", {"data": {"fresh": True}}),
        Experiment("float32", "float32, not bfloat16", {"train": {"precision": "float32"}}),
        replace(_frozen(0.05, 0.2), label="patterns frozen after 1/5 (epoch 10 of 50)"),
        replace(_frozen(0.05, 0.5), label="patterns frozen after 1/2 (epoch 25 of 50)"),
    ]  # fmt: skip


TABLES: dict[str, Callable[[], list[Experiment]]] = {
    "rates": _rates,
    "sparsity": _sparsity,
    "frozen": _frozen_at_half,
    "as-published": _as_published,
    "comparison": _comparison,
    "sda": _sda_sweep,
    "ablations": _ablations,
}


def choose_experiments(experiments: list[Experiment], options: Options) -> list[Experiment]:
    """Return the rows that the user asked for and that can be measured as asked."""
    names = [e.name for e in experiments]
    for name in options.only:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(names)}"
            raise TersenseError(f"no row of this table is called {name}; {hint}")
    chosen = [e for e in experiments if not options.only or e.name in options.only]
    possible = [e for e in chosen if protocols(e, options)]
    if options.only and possible != chosen:
        raise TersenseError(
            "total variation is of a whole image, so it has no overlapping windows; "
            "measure it with --protocol own"
        )
    return possible


def protocols(experiment: Experiment, options: Options) -> dict[str, int | None]:
    """Return the protocols to measure by, and the stride of each; None for the camera's own."""
    half = 16 if experiment.model else 4  # of the window: models have their own in a quick run too
    wanted: dict[str, int | None] = {OWN: None, OVERLAPPING: options.stride}
    if options.quick:
        wanted[OVERLAPPING] = half
    if experiment.method == "tv":  # of an image, not of its windows
        del wanted[OVERLAPPING]
    return {name: stride for name, stride in wanted.items() if name in PROTOCOLS[options.protocol]}


def recipe(experiment: Experiment, options: Options) -> Config:
    """Return the paper's recipe with the experiment's changes and the user's budget."""
    tables: dict[str, dict[str, Any]] = {
        "sensing": {"density": 0.05},
        "reconstructor": {},
        "data": {"train": str(options.train)},
        "train": {
            "out": str(options.folder(experiment)),
            "seed": options.seed,
            "epochs": options.epochs,
            "lr_decay_epochs": max(1, options.epochs // 10),
            "seconds": options.seconds,
            "device": options.device,
            "compile": choose_device(options.device).type == "cuda",
        },
    }
    sda = experiment.settings.get("reconstructor", {}).get("name") == "sda"
    if options.quick:
        tables["sensing"].update(window=8, stride=8)
        tables["reconstructor"].update({"pretrain_steps": 20} if sda else {"hidden": [48]})
        tables["data"].update(crop=8, samples=20_000)
        tables["train"].update(batch=500, epochs=min(options.epochs, 5), lr_decay_epochs=1)
    if experiment.learned < 1:
        tables["train"]["freeze_epochs"] = max(
            1, round(experiment.learned * tables["train"]["epochs"])
        )
    for section, changes in experiment.settings.items():
        tables[section].update(changes)
    if options.quick:
        _shorten(tables)
    if experiment.model:
        tables["sensing"].update(window=32, stride=32)
    return build_config(tables)


def _shorten(tables: dict[str, dict[str, Any]]) -> None:
    """Make small what an experiment itself sets."""
    if tables["data"].get("held_out"):
        tables["data"]["held_out"] = 2  # of few images
    if tables["reconstructor"].get("pretrain_steps"):
        tables["reconstructor"]["pretrain_steps"] = 20
