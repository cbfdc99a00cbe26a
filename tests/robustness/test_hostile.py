"""Attacks and bad days that once succeeded: each with its reproduction."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import tersense
from runs import small_config
from tersense.errors import TersenseError
from tersense.io.images import write_image
from tersense.measurements.measurements import Measurements
from tersense.measurements.tsm import Header
from tersense.models.files import read_model, write_model
from tersense.sensing.patterns import Patterns
from tersense.training.run import train


def test_measurements_that_no_accumulator_holds_are_refused_before_they_are_taken():
    """3000×3000 ones on a white image gave −1,999,967,296 instead of 2,295,000,000."""
    with pytest.raises(ValueError, match=r"must fit 32 bits, .* 9,000,000 entries .* needs 33"):
        Patterns(np.ones((1, 3000, 3000), np.int8), 3000)
    widest = np.zeros((1, 2902, 2902), np.int8)
    widest.reshape(-1)[: 2**31 // 255] = 1
    assert Patterns(widest, 2902).accumulator_bits == 32
    widest.reshape(-1)[: 2**31 // 255 + 1] = 1
    with pytest.raises(ValueError, match="needs 33"):
        Patterns(widest, 2902)


def take_apart(path):
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["tersense"]), tensors


def put_together(path, description, tensors):
    save_file(tensors, path, {"tersense": json.dumps(description)})


IN_USE = """
import shutil, sys
import numpy as np
import tersense
imager = tersense.load(sys.argv[1])
image = np.zeros((16, 16), np.uint8)
before = imager.reconstruct(imager.sense(image))
open(sys.argv[1], "r+b").truncate(100)
assert (imager.reconstruct(imager.sense(image)) == before).all()
"""


def test_a_model_in_use_survives_what_happens_to_its_file(small_imager, tmp_path):
    """Weights that stay mapped to the file end the process with a bus error."""
    write_model(tmp_path / "model.safetensors", small_imager)
    command = [sys.executable, "-c", IN_USE, str(tmp_path / "model.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_sparse_model_file_that_claims_too_much_is_refused_before_it_is_read(tmp_path):
    """A file of 4 KB on disk with 600 million entries of Φ took 8.5 GB and 21 s."""
    header = {
        "__metadata__": {"tersense": json.dumps({
            "format": 1, "name": "big", "stride": 1, "mean": 0.0, "std": 1.0,
            "reconstructor": "linear", "options": {}, "about": {},
        })},
        "phi": {"dtype": "I8", "shape": [6, 10000, 10000], "data_offsets": [0, 600_000_000]},
        "alpha": {"dtype": "F32", "shape": [6], "data_offsets": [600_000_000, 600_000_024]},
    }  # fmt: skip
    text = json.dumps(header).encode()
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 600_000_024)
    with pytest.raises(TersenseError, match="at most 268,435,456 entries, got 600,000,000"):
        read_model(path)


def test_a_small_measurement_file_of_a_huge_image_is_refused_unless_asked_for(tmp_path):
    """A file of a kilobyte with matching patterns claimed 3.3 gigapixels."""
    header = Header(2**15, 2**14, "L", 2**14, 2**14, 1, "ab" * 32)
    y = Measurements(np.zeros(header.shape, np.int32), header)
    y.save(tmp_path / "huge.tsm")
    with pytest.raises(TersenseError, match=r"at most 268,435,456 pixels, got 16384×32768"):
        Measurements.load(tmp_path / "huge.tsm")
    assert Measurements.load(tmp_path / "huge.tsm", max_pixels=2**29).header == header


CHANGES = {
    "negative format": {"format": -7},
    "no format": {"format": float("nan")},
    "a format of text": {"format": "1"},
    "a mean of text": {"mean": "116"},
    "a mean that is true": {"mean": True},
    "no mean": {"mean": float("nan")},
    "no deviation": {"std": 0.0},
    "a name of numbers": {"name": 7},
    "a stride that is true": {"stride": True},
    "options in a list": {"options": []},
    "about in a text": {"about": "me"},
    "another entry": {"import": "os"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_metadata_is_taken_at_its_word(small_imager, tmp_path, change):
    path = tmp_path / "model.safetensors"
    write_model(path, small_imager)
    description, tensors = take_apart(path)
    put_together(path, description | CHANGES[change], tensors)
    with pytest.raises(TersenseError, match="model"):
        read_model(path)


TENSORS = {
    "alpha of booleans": ("alpha", lambda t: t > 0),
    "complex alpha": ("alpha", lambda t: t.to(torch.complex64)),
    "alpha beyond single precision": ("alpha", lambda t: t.double() * 1e300),
    "a Φ of zeros": ("phi", torch.zeros_like),
    "a weight beyond single precision": (
        "reconstructor.layers.0.weight", lambda t: t.double() + 1e300,
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", TENSORS)
def test_tensors_that_cannot_be_right_are_refused(small_imager, tmp_path, change):
    path = tmp_path / "model.safetensors"
    write_model(path, small_imager)
    description, tensors = take_apart(path)
    name, spoil = TENSORS[change]
    put_together(path, description, tensors | {name: spoil(tensors[name])})
    with pytest.raises(TersenseError):
        read_model(path)


def test_a_result_keeps_the_mode_of_the_file_that_it_replaces(small_imager, tmp_path):
    """A private file became readable by everybody."""
    path = tmp_path / "y.tsm"
    path.touch(0o600)
    small_imager.sense(np.zeros((8, 8), np.uint8)).save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert tersense.Measurements.load(path).values.shape == (16, 1, 1)
    shutil.rmtree(tmp_path)


HOLD = """
import sys
from tersense.training.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
folder.claim()
print("claimed", flush=True)
sys.stdin.read()
"""


def test_two_trainings_in_one_folder_do_not_overwrite_each_other(tmp_path):
    """A killed process lets go; what it said of itself does not keep anybody out."""
    config = small_config(tmp_path / "run", train__epochs=1)
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(TersenseError, match=rf"in use by process {other.pid} on .*, since "):
            train(config)
        other.kill()
    assert (tmp_path / "run/.owner").exists()
    train(config)
    assert not (tmp_path / "run/.owner").exists()
    assert tersense.load(tmp_path / "run").about["steps"] == 20


WRITE = """
import pathlib, signal, sys
from tersense.cli import main

def half(path, content):
    with path.open("wb") as file:
        file.write(content[:50])
    print("writing", flush=True)
    while True:  # not signal.pause, which never ends if the signal came just before it
        signal.sigtimedwait([], 0.05)

pathlib.Path.write_bytes = half
sys.exit(main(["sense", sys.argv[1], "-m", "paper-r25", "-o", sys.argv[2]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_nothing_half_written(tmp_path, number):
    write_image(tmp_path / "a.png", np.zeros((32, 32), np.uint8))
    command = [sys.executable, "-c", WRITE, str(tmp_path / "a.png"), str(tmp_path / "a.tsm")]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as program:
        assert program.stdout.readline() == "writing\n"
        assert list(tmp_path.glob(".partial-*"))
        program.send_signal(number)
        _, said = program.communicate(timeout=60)
    assert program.returncode == 128 + number
    assert said == ("" if number == signal.SIGINT else "tersense: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
