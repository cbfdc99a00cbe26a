"""The paper's tables, ours beside the published figures, one command a table.

A table is a list of experiments. An experiment trains a camera (or takes a classical one), measures
it on every test set by both protocols, and leaves `result.json` in a folder of its own; what is
there already is not done again, and a training that was interrupted goes on.
"""

import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tersense.errors import Interrupted, TersenseError
from tersense.evaluation.protocols import CameraLike, score_image, summarize
from tersense.experiments.matrices import (
    describe_matrix,
    find_patterns,
    require_models,
    which_matrix,
)
from tersense.experiments.report import mean_psnr
from tersense.experiments.results import read_result
from tersense.experiments.tables import (
    OVERLAPPING,
    OWN,
    TABLES,
    Experiment,
    Options,
    choose_experiments,
    protocols,
    recipe,
)
from tersense.experiments.testsets import find_sets, hash_images, read_set
from tersense.io.files import make_folder, write_json
from tersense.io.images import find_images
from tersense.io.patches import is_patch_file
from tersense.models.imager import Imager
from tersense.reconstruction.classical import NAMES
from tersense.runtime.device import choose_device
from tersense.runtime.progress import Quiet
from tersense.runtime.signals import leave
from tersense.training.config import Config
from tersense.training.packing import open_images, resolve_source
from tersense.training.run import open_run


def run_table(
    table: str, options: Options, say: Any = print, experiments: list[Experiment] | None = None
) -> dict[str, Any]:
    """Run what is missing of a table, several experiments side by side; return all results."""
    every = experiments or TABLES[table]()
    experiments = choose_experiments(every, options)
    _check(options)
    require_models(experiments)
    make_folder(options.out)
    # Rows that are given the Φ of another row come after it, asked for or not.
    needed = {e.needs for e in experiments} - {e.name for e in experiments}
    trained_first = [e for e in every if e.name in needed and not _trained(e, options)]
    for experiment in trained_first:
        say(f"{experiment.label}: trained first, because other rows use its Φ")
    _run_missing([*trained_first, *(e for e in experiments if not e.needs)], options, say)
    _run_missing([e for e in experiments if e.needs], options, say)
    results = {e.name: _read_result(e, options) for e in experiments}
    return {
        "table": table,
        "rows": [
            {
                "name": options.folder(e).name,
                "label": e.label,
                "published": list(e.published),
                **results[e.name],
            }
            for e in experiments
        ],
    }  # fmt: skip


def _run_missing(experiments: list[Experiment], options: Options, say: Any) -> None:
    """Run those experiments that have no result yet."""
    missing = [e for e in experiments if not _finished(e, options)]
    for experiment in experiments:
        if experiment not in missing:
            say(f"{experiment.label}: done before")
    context = multiprocessing.get_context("spawn")
    if len(missing) == 1 or options.parallel == 1:
        for experiment in missing:
            say(_summary(experiment, run_experiment(experiment, options)))
    elif missing:
        with ProcessPoolExecutor(options.parallel, context, _end_in_good_order) as pool:
            jobs = {pool.submit(_run_in_worker, e, options): e for e in missing}
            try:
                for job in as_completed(jobs):
                    say(_summary(jobs[job], job.result()))
            except (KeyboardInterrupt, SystemExit, Interrupted):
                # Otherwise the pool waits for every experiment, also those that have not begun.
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()
                raise


def _end_in_good_order() -> None:
    """Let SIGTERM end what a process does between two training runs, which have handlers too."""
    signal.signal(signal.SIGTERM, leave)


def _run_in_worker(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Run an experiment; a process that is asked to stop takes no other one from the queue."""
    try:
        return run_experiment(experiment, options)
    except (KeyboardInterrupt, SystemExit, Interrupted):
        os._exit(1)


def _check(options: Options) -> None:
    """Refuse what would fail only after hours of training."""
    find_sets(options.tests)
    choose_device(options.device)
    source = resolve_source(options.train)
    if not is_patch_file(source):
        find_images(source)
    if not 1 <= options.stride <= 32:
        raise TersenseError(f"stride {options.stride} must lie between 1 and the window, 32")


def run_experiment(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Train or build one camera, measure it on every set, and write `result.json`."""
    config = recipe(experiment, options)
    make_folder(Path(config.train.out))
    began = time.perf_counter()
    result: dict[str, Any] = {"protocol": _protocol(experiment, options)}
    camera: CameraLike
    if experiment.method == "train":
        camera, training = _train(config, options.tests)
        result |= training
    else:
        device = choose_device(config.train.device)
        patterns = find_patterns(experiment, options)
        camera = Imager.untrained(patterns, experiment.method, NAMES[experiment.method], device)
    result |= {"matrix": describe_matrix(camera), "device": camera.device.type}
    result["sets"] = {
        test.name: {
            protocol: _evaluate(camera, test, stride, options)
            for protocol, stride in protocols(experiment, options).items()
        }
        for test in options.tests
    }
    result["wall_seconds"] = round(time.perf_counter() - began, 1)
    write_json(_result_path(experiment, options), result)
    return result


def _train(config: Config, tests: tuple[Path, ...]) -> tuple[CameraLike, dict[str, Any]]:
    """Train, or go on training, and say how it went on training and on unseen crops."""
    begun = (Path(config.train.out) / "config.toml").exists()
    run = open_run(config, begun, Quiet())
    try:
        run.loop.run()
        if run.loop.stopped_by:
            raise Interrupted(run.loop.stopped_by)
        camera = run.finish()
    finally:
        run.folder.release()
    return camera, {
        "steps": run.state.step,
        "step_seconds": round(run.state.seconds, 1),
        "patterns": camera.rows,
        "training_loss": run.loop.trained_loss(),
        "unseen_loss": {
            test.name: run.loop.mean_loss(open_images(test, config.data.crop).to(run.state.device))
            for test in tests
        },
        "epochs": [entry for entry in run.folder.metrics() if "held_out" in entry],
    }


def _evaluate(
    camera: CameraLike, folder: Path, stride: int | None, options: Options
) -> dict[str, Any]:
    images = read_set(find_sets([folder], options.quick)[folder.name], options.quick)
    scores = [score_image(camera, *image, stride) for image in images]
    return summarize(camera, folder.name, scores, stride)


def _protocol(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Return everything that makes two results comparable."""
    config = asdict(recipe(experiment, options))
    for key in ("out", "device", "compile"):
        config["train"].pop(key)
    config["data"]["train"] = options.train.name
    tests = sorted(test.name for test in options.tests)
    images = {test.name: hash_images(test) for test in options.tests}
    if experiment.method == "train":
        images["training"] = hash_images(resolve_source(options.train), contents=False)
    matrix = {} if experiment.method == "train" else which_matrix(experiment, options)
    return {"method": experiment.method, "config": config, "quick": options.quick,
            "protocols": protocols(experiment, options), "tests": tests,
            "pictures": images} | matrix  # fmt: skip


def _result_path(experiment: Experiment, options: Options) -> Path:
    return options.folder(experiment) / "result.json"


def _read_result(experiment: Experiment, options: Options) -> dict[str, Any]:
    return read_result(_result_path(experiment, options))


def _finished(experiment: Experiment, options: Options) -> bool:
    """Tell whether the result is there; refuse one that was made in another way."""
    if not _result_path(experiment, options).exists():
        return False
    wanted = json.loads(json.dumps(_protocol(experiment, options)))
    made = _read_result(experiment, options)["protocol"]
    # Results of before a key was there say nothing about it.
    others = [key for key, value in wanted.items() if made.get(key, value) != value]
    if others:
        raise TersenseError(
            f"{_result_path(experiment, options)} was made with other settings, data or protocol "
            f"({', '.join(others)}); choose another --out, or remove it"
        )
    return True


def _trained(experiment: Experiment, options: Options) -> bool:
    """Tell whether the camera of a row is there, whatever it was measured on."""
    if not _result_path(experiment, options).exists():
        return False
    wanted = json.loads(json.dumps(_protocol(experiment, options)))
    made = _read_result(experiment, options)["protocol"]
    if any(made.get(key) != wanted[key] for key in ("config", "quick")):
        raise TersenseError(
            f"{_result_path(experiment, options)} was made with other settings; choose another "
            "--out, or remove it"
        )
    return True


def _summary(experiment: Experiment, result: dict[str, Any]) -> str:
    figures = ", ".join(
        f"{name} {mean_psnr(figures, OVERLAPPING)} ({mean_psnr(figures, OWN)}) dB"
        for name, figures in result["sets"].items()
    )
    return f"{experiment.label}: {figures} ({result['wall_seconds']} s)"
