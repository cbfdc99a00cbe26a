"""Trainings that meet trouble, for real: full disks, bad images, numbers that explode, kills."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest
import torch
from skimage import data

from long import kills
from runs import (
    assert_equal_weights,
    small_config,
    train_until,
    unrolled_config,
    weights_of,
)
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.io.files import locked
from tersense.io.images import write_image
from tersense.runtime.progress import Quiet
from tersense.training.checkpoint import read_checkpoint
from tersense.training.config import write_toml
from tersense.training.network import JointNetwork
from tersense.training.run import Run, open_run, train


@contextmanager
def small_files_only(folder):
    """Let no file grow beyond 4 KB: settings fit, a checkpoint does not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def full_disk(folder):
    """Fill the disk of a folder to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


@pytest.fixture(params=[small_files_only, full_disk], ids=["limited files", "full disk"])
def place_and_trouble(request, tmp_path):
    """A folder, and what makes it impossible to write a checkpoint there."""
    if request.param is small_files_only:
        yield tmp_path, request.param
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may make a small disk; the other form of this test always runs")
    yield tmp_path, request.param
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)  # weights are mapped


def test_a_full_disk_costs_only_the_time_since_the_last_checkpoint(place_and_trouble, tmp_path):
    place, trouble = place_and_trouble
    train(small_config(place / "whole"))
    whole = weights_of(place / "whole")
    train(small_config(place / "run", train__epochs=1))
    kept = (place / "run/checkpoint.safetensors").read_bytes()
    with trouble(place), pytest.raises(TersenseError, match=r"cannot write .*\S") as caught:
        train(small_config(place / "run"), resume=True)
    assert "\n" not in str(caught.value)
    assert (place / "run/checkpoint.safetensors").read_bytes() == kept
    assert not list((place / "run").glob(".*"))
    train(small_config(place / "run"), resume=True)
    assert_equal_weights(weights_of(place / "run"), whole)


def test_an_unreadable_image_among_others_is_counted_and_left_out(tmp_path, capsys):
    for name, good in (("with", data.astronaut()), ("without", data.astronaut())):
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "a.png", good)
        write_image(tmp_path / name / "c.png", data.camera())
    whole = (tmp_path / "with/a.png").read_bytes()
    (tmp_path / "with/b.png").write_bytes(whole[: len(whole) // 2])
    for name in ("with", "without"):
        config = small_config(
            tmp_path / f"run-{name}", train__epochs=1, data__train=str(tmp_path / name)
        )
        (tmp_path / "config.toml").write_text(write_toml(config))
        assert main(["train", str(tmp_path / "config.toml")]) == 0
        assert ("1 unreadable" in capsys.readouterr().err) == (name == "with")
    assert_equal_weights(weights_of(tmp_path / "run-with"), weights_of(tmp_path / "run-without"))


def test_a_rate_that_explodes_ends_in_one_line_and_a_good_checkpoint(tmp_path, capsys):
    """The learning rate rises from harmless to absurd, as settings allow."""
    config = small_config(
        tmp_path / "run", train__lr=0.001, train__lr_decay=1e12, train__lr_decay_epochs=1,
        train__epochs=9,
    )  # fmt: skip
    (tmp_path / "config.toml").write_text(write_toml(config))
    assert main(["train", str(tmp_path / "config.toml")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "train.lr" in said
    run = Run(config, Quiet())
    run.state.load(run.folder.checkpoint)
    assert all(weight.isfinite().all() for weight in run.state.network.parameters())


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    train(small_config(tmp_path / "whole", train__epochs=1))
    config = small_config(tmp_path / "run", train__epochs=1)
    open_run(config, False, Quiet())  # and then it is killed: these are what is left
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 7, "loss": 1.0}\n{"step"')
    (tmp_path / "run/.partial-0123456789abcdef").mkdir()
    (tmp_path / "run/.partial-0123456789abcdef/.tmpAmhfpf").write_bytes(b"half of something")
    train(config, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"))
    assert not list((tmp_path / "run").glob(".*"))
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1


def test_random_rates_go_on_where_they_stopped(tmp_path):
    """One model for many rates draws a rate in every step."""
    settings = {"reconstructor__nested": True, "train__checkpoint_epochs": 1}
    train(unrolled_config(tmp_path / "whole", **settings))
    config = unrolled_config(tmp_path / "parts", **settings)
    train_until(config, 50)
    train(config, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_a_checkpoint_of_before_the_random_state_was_kept_is_read(tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    config = small_config(tmp_path / "run", train__epochs=1)
    train(config)
    path = tmp_path / "run/checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    kept = {key: value for key, value in load_file(path).items() if not key.startswith("random.")}
    save_file(kept, path, metadata)
    run = Run(config, Quiet())
    assert read_checkpoint(path, run.state.network, run.state.optimizer)["step"] == 20


PACK = """
import sys
from tersense.training.packing import open_images
store = open_images(sys.argv[1], 8, sys.argv[2])
print(len(store), int(store.pixels.sum()))
"""


def test_processes_that_share_a_cache_take_turns(tmp_path):
    """One packs while the other waits, and removes what a killed one left."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / ".partial-0123456789abcdef").mkdir()
    (cache / ".partial-0123456789abcdef/pixels.u8").write_bytes(bytes(1000))
    command = [sys.executable, "-c", PACK, "package:skimage/data", str(cache)]
    with locked(cache):
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        with pytest.raises(subprocess.TimeoutExpired):
            both[0].wait(1)
        assert not (cache / "pixels.u8").exists()
    said = {process.communicate(timeout=60)[0] for process in both}
    assert len(said) == 1
    assert sorted(path.name for path in cache.iterdir()) == [
        ".lock", "index.safetensors", "pixels.u8"
    ]  # fmt: skip


def test_a_loss_that_is_no_number_is_not_saved(tmp_path, monkeypatch):
    honest, calls = JointNetwork.forward, []

    def sometimes(self, pixels):
        calls.append(1)
        return honest(self, pixels) * (float("nan") if len(calls) > 30 else 1.0)

    monkeypatch.setattr(JointNetwork, "forward", sometimes)
    with pytest.raises(TersenseError, match="checkpoint stays"):
        train(small_config(tmp_path / "run"))
    monkeypatch.undo()
    whole = small_config(tmp_path / "whole")
    train(whole)
    train(small_config(tmp_path / "run"), resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"))
    assert torch.isfinite(weights_of(tmp_path / "run")["alpha"]).all()


def test_a_training_killed_three_times_ends_as_if_it_had_been_left_alone(tmp_path, monkeypatch):
    """Of these kills, one strikes while a checkpoint is written; `make kills` does 50."""
    monkeypatch.setitem(kills.TABLES["train"], "epochs", 6)
    figures = kills.run_kills(3, tmp_path)
    assert figures["kills"] == 3
    assert figures["runs that ended alike"] == figures["runs"] == 1
