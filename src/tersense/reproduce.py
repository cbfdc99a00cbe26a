"""The paper's tables, ours beside the published figures, one command a table.

A table is a list of experiments. An experiment trains a camera (or takes a classical one), measures
it on every test set by both protocols, and leaves `result.json` in a folder of its own; what is
there already is not done again, and a training that was interrupted goes on.
"""

import json
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tersense.baselines.classical import ClassicalImager, random_patterns
from tersense.camera import Camera
from tersense.config import Config, build_config
from tersense.data import open_pictures, resolve_source
from tersense.devices import choose_device
from tersense.errors import TersenseError
from tersense.evaluate import score_picture, summarize, write_json
from tersense.files import make_folder
from tersense.images import find_images, read_gray
from tersense.ternary import rows_for_rate
from tersense.train import open_run
from tersense.watcher import Quiet

OWN, OVERLAPPING = "own geometry", "overlapping"
RATES = (0.1, 0.15, 0.2, 0.25, 0.3)
DENSITIES = (0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 1.0)

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


@dataclass(frozen=True)
class Experiment:
    """One row of a table.

    Args:
        name: Of its folder.
        label: In the table.
        settings: Changes to the paper's recipe, section by section.
        method: train, or a classical one: bp or tv.
        published: The paper's figures that belong to it, on its first and second test set.
    """

    name: str
    label: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    method: Literal["train", "bp", "tv"] = "train"
    published: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Options:
    """What a user chooses.

    Args:
        train: Folder of training pictures.
        tests: Folders of test pictures.
        out: Where results go.
        epochs: Budget of a training; 50 in the paper.
        seconds: Another budget; 0 for none.
        stride: Of the overlapping protocol; 2 in the paper.
        parallel: Experiments side by side.
        device: auto, cpu or cuda.
        quick: Everything small: to see that it works, not to compare.
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


def _comparison() -> list[Experiment]:
    published = PUBLISHED_COMPARISON
    ours = replace(_learned(0.25, 0.05), label="ours (5 % ternary)", published=published["ours"])
    dense: dict[str, dict[str, Any]] = {"sensing": {"kind": "float"}}
    sda = {**dense, "reconstructor": {"name": "sda"}, "train": {"lr": 0.001}}
    return [
        ours,
        Experiment("float", "dense float sensing, our network", dense),
        Experiment("random", "random 5 % ternary, our network", {"sensing": {"kind": "random"}}),
        Experiment("sda", "O-NL-SDA", sda, published=published["O-NL-SDA"]),
        Experiment("tv-5", "total variation, random 5 % ternary", method="tv"),
        Experiment("bp-5", "BP, random 5 % ternary", method="bp"),
        Experiment("bp-dense", "BP, random dense ternary", {"sensing": {"density": 1.0}}, "bp",
                   published["BP, dense ternary"]),
    ]  # fmt: skip


def _ablations() -> list[Experiment]:
    return [
        replace(_learned(0.25, 0.05), label="the recipe: by column, ℓ2 off, α"),
        Experiment("by-row", "selected by row (pixel)", {"sensing": {"selection": "row"}}),
        Experiment("by-matrix", "selected over the matrix", {"sensing": {"selection": "matrix"}}),
        Experiment("l2", "ℓ2 = 0.001, as the paper states", {"train": {"l2": 0.001}}),
        Experiment("learned-scale", "a learned scale, not α", {"sensing": {"scale": "learned"}}),
        Experiment("fresh", "new patches every epoch", {"data": {"fresh": True}}),
    ]  # fmt: skip


TABLES = {
    "rates": _rates,
    "sparsity": _sparsity,
    "comparison": _comparison,
    "ablations": _ablations,
}


def recipe(experiment: Experiment, options: Options) -> Config:
    """Return the paper's recipe with the experiment's changes and the user's budget."""
    tables: dict[str, dict[str, Any]] = {
        "sensing": {"density": 0.05},
        "reconstructor": {},
        "data": {"train": str(options.train)},
        "train": {
            "out": str(options.out / experiment.name),
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
    for section, changes in experiment.settings.items():
        tables[section].update(changes)
    return build_config(tables)


def run_table(
    table: str, options: Options, say: Any = print, experiments: list[Experiment] | None = None
) -> dict[str, Any]:
    """Run what is missing of a table, several experiments side by side; return all results."""
    experiments = experiments or TABLES[table]()
    _check(options)
    make_folder(options.out)
    missing = [e for e in experiments if not _finished(e, options)]
    for experiment in experiments:
        if experiment not in missing:
            say(f"{experiment.label}: done before")
    context = multiprocessing.get_context("spawn")
    if len(missing) == 1 or options.parallel == 1:
        for experiment in missing:
            say(_summary(experiment, run_experiment(experiment, options)))
    elif missing:
        with ProcessPoolExecutor(options.parallel, context) as pool:
            jobs = {pool.submit(run_experiment, e, options): e for e in missing}
            for job in as_completed(jobs):
                say(_summary(jobs[job], job.result()))
    results = {e.name: _read_result(e, options) for e in experiments}
    return {
        "table": table,
        "rows": [
            {"name": e.name, "label": e.label, "published": list(e.published), **results[e.name]}
            for e in experiments
        ],
    }


def _check(options: Options) -> None:
    """Refuse what would fail only after hours of training."""
    names = [test.name for test in options.tests]
    if len(set(names)) < len(names):
        raise TersenseError(f"two test folders have the same name: {', '.join(sorted(names))}")
    for test in options.tests:
        find_images(test)
    resolve_source(options.train)
    if not 1 <= options.stride <= 32:
        raise TersenseError(f"stride {options.stride} must lie between 1 and the window, 32")


def run_experiment(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Train or build one camera, measure it on every set, and write `result.json`."""
    config = recipe(experiment, options)
    make_folder(Path(config.train.out))
    began = time.perf_counter()
    result: dict[str, Any] = {"protocol": _protocol(experiment, options)}
    camera: Camera
    if experiment.method == "train":
        camera, training = _train(config, options.tests)
        result |= training
    else:
        camera = _classical(experiment, config)
    result["sets"] = {
        test.name: {
            protocol: _evaluate(camera, test, stride, options)
            for protocol, stride in _protocols(experiment, options).items()
        }
        for test in options.tests
    }
    result["wall_seconds"] = round(time.perf_counter() - began, 1)
    write_json(_result_path(experiment, options), result)
    return result


def _train(config: Config, tests: tuple[Path, ...]) -> tuple[Camera, dict[str, Any]]:
    """Train, or go on training, and say how it went on training and on unseen crops."""
    begun = (Path(config.train.out) / "config.toml").exists()
    run = open_run(config, begun, Quiet())
    run.train()
    if run.interrupted:
        raise KeyboardInterrupt
    camera = run.finish()
    return camera, {
        "steps": run.step,
        "step_seconds": round(run.seconds, 1),
        "patterns": camera.rows,
        "training_loss": run.mean_loss(run.pictures),
        "unseen_loss": {
            test.name: run.mean_loss(open_pictures(test, config.data.crop)) for test in tests
        },
    }


def _classical(experiment: Experiment, config: Config) -> Camera:
    sensing = config.sensing
    rows = rows_for_rate(sensing.rate, sensing.stride)
    density = None if sensing.density == 1.0 else sensing.density  # not sparse: see there
    patterns = random_patterns(rows, sensing.window, density)
    device = choose_device(config.train.device)
    return ClassicalImager(patterns, "tv" if experiment.method == "tv" else "bp", device)


def _protocols(experiment: Experiment, options: Options) -> dict[str, int | None]:
    """Return the protocols to measure by; total variation is of a picture, not of its windows."""
    stride = 4 if options.quick else options.stride
    both: dict[str, int | None] = {OWN: None, OVERLAPPING: stride}
    return {OWN: None} if experiment.method == "tv" else both


def _evaluate(camera: Camera, folder: Path, stride: int | None, options: Options) -> dict[str, Any]:
    files = find_images(folder)[: 2 if options.quick else None]
    pictures = ((path.stem, read_gray(path)) for path in files)
    if options.quick:
        pictures = ((name, picture[:48, :40]) for name, picture in pictures)
    scores = [score_picture(camera, name, picture, stride) for name, picture in pictures]
    return summarize(camera, folder.name, scores, stride)


def _protocol(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Return everything that makes two results comparable."""
    config = asdict(recipe(experiment, options))
    for key in ("out", "device", "compile"):
        config["train"].pop(key)
    config["data"]["train"] = options.train.name
    tests = sorted(test.name for test in options.tests)
    return {"method": experiment.method, "config": config, "quick": options.quick,
            "protocols": _protocols(experiment, options), "tests": tests}  # fmt: skip


def _result_path(experiment: Experiment, options: Options) -> Path:
    return options.out / experiment.name / "result.json"


def _read_result(experiment: Experiment, options: Options) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(_result_path(experiment, options).read_text("utf-8"))
    return result


def _finished(experiment: Experiment, options: Options) -> bool:
    """Tell whether the result is there; refuse one that was made in another way."""
    if not _result_path(experiment, options).exists():
        return False
    wanted = json.loads(json.dumps(_protocol(experiment, options)))
    if _read_result(experiment, options)["protocol"] != wanted:
        raise TersenseError(
            f"{_result_path(experiment, options)} was made with other settings, data or protocol; "
            "choose another --out, or remove it"
        )
    return True


def _summary(experiment: Experiment, result: dict[str, Any]) -> str:
    figures = ", ".join(
        f"{name} {_mean(figures, OVERLAPPING)} ({_mean(figures, OWN)}) dB"
        for name, figures in result["sets"].items()
    )
    return f"{experiment.label}: {figures} ({result['wall_seconds']} s)"


def to_markdown(result: dict[str, Any]) -> str:
    """Return a table of means, and below it one of every image of every set."""
    rows = result["rows"]
    sets = list(rows[0]["sets"])
    quick = rows[0]["protocol"]["quick"]
    head = ["", *(f"{name}" for name in sets), "paper, its first set", "its second set"]
    lines = [
        f"# {result['table']}",
        "",
        "PSNR in dB, mean over images: overlapping windows (the paper's protocol), and in brackets "
        "the camera's own geometry.",
        "The paper's test sets are not public; our sets are others.",
        *(
            [
                "",
                "**A quick run of a small camera (8×8 windows, few patches, bits of few pictures):",
                "it shows that everything works, and is not to be compared with anything.**",
            ]
            if quick
            else []
        ),
        "",
        _line(head),
        _line(["---"] * len(head)),
    ]
    for row in rows:
        cells = [
            f"{_mean(row['sets'][s], OVERLAPPING)} ({_mean(row['sets'][s], OWN)})" for s in sets
        ]
        published = ["" if p is None else f"{p:.2f}" for p in row["published"]]
        lines.append(_line([row["label"], *cells, *published]))
    measured = rows[0]["sets"][sets[0]]
    lines += [
        "",
        f"Measurements a pixel on {sets[0]}: "
        f"{measured[OVERLAPPING]['measurements_per_pixel']:.4g} overlapping, "
        f"{measured[OWN]['measurements_per_pixel']:.4g} in its own geometry (first row).",
    ]
    for name in sets:
        lines += ["", f"## {name}, image by image, overlapping", ""]
        lines += _image_table(rows, name)
    return "\n".join(lines) + "\n"


def _image_table(rows: list[dict[str, Any]], name: str) -> Iterable[str]:
    rows = [row for row in rows if OVERLAPPING in row["sets"][name]]
    images = [image["name"] for image in rows[0]["sets"][name][OVERLAPPING]["images"]]
    yield _line(["image", *(row["label"] for row in rows)])
    yield _line(["---"] * (len(rows) + 1))
    for number, image in enumerate(images):
        figures = [row["sets"][name][OVERLAPPING]["images"][number]["psnr"] for row in rows]
        yield _line([image, *("–" if f is None else f"{f:.2f}" for f in figures)])


def _mean(figures: dict[str, Any], protocol: str) -> str:
    value = figures.get(protocol, {"mean": {"psnr": None}})["mean"]["psnr"]
    return "–" if value is None else f"{value:.2f}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
