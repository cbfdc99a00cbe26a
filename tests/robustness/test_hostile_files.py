"""Attacks through files, names and signals: each with its reproduction."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import tersense
import tersense.cli.console as console_module
from catalog import walk
from conftest import build_small_imager
from desk import lay_out
from tersense.cli.program import main
from tersense.errors import TersenseError, TersenseWarning, visible
from tersense.experiments.plots import plot_training
from tersense.io.files import write_json, written_whole
from tersense.io.images import SUFFIXES, read_image, require_image_target, write_image
from tersense.io.marks import is_marked
from tersense.models.files import write_model

COMMANDS = {command.name: command for command in walk()}


PAUSE = """
import signal, sys
from tersense.io.files import write_json, written_whole
with written_whole(sys.argv[1]) as partial:
    partial.write_text("half")
    print(partial.parent.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_nothing_that_a_living_one_writes(tmp_path):
    """Every kill left a file that nobody ever removed."""
    mine = tmp_path / ".partial-of-mine"
    mine.mkdir()
    command = [sys.executable, "-c", PAUSE]
    with (
        subprocess.Popen([*command, str(tmp_path / "a")], stdin=-1, stdout=-1, text=True) as living,
        subprocess.Popen([*command, str(tmp_path / "b")], stdin=-1, stdout=-1, text=True) as killed,
    ):
        places = [tmp_path / program.stdout.readline().strip() for program in (living, killed)]
        killed.kill()
        killed.wait()
        assert all(place.is_dir() for place in places)
        (tmp_path / "new").mkdir()
        write_image(tmp_path / "c.png", np.zeros((4, 4), np.uint8))
        assert [place.exists() for place in places] == [True, False]
        living.communicate("go on")
    assert living.returncode == 0
    names = [".partial-of-mine", "a", "c.png", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_folder_without_locks_is_written_too(tmp_path, monkeypatch):
    """There, nobody can tell what is alive: what a killed process left stays."""

    def no_locks(*arguments):
        raise OSError(95, "Operation not supported")

    left = tmp_path / ".partial-0123456789abcdef"
    left.mkdir()
    monkeypatch.setattr("fcntl.flock", no_locks)
    with written_whole(tmp_path / "a.txt") as partial:
        partial.write_text("all of it")
        assert partial.parent.name.startswith(".partial-unlocked-")
    assert sorted(path.name for path in tmp_path.iterdir()) == [left.name, "a.txt"]


# Those that measure or train for long, and two exports that are slower than all others.
SLOW = ("bench", "reproduce", "app", "export onnx", "export web")
WRITING = [name for name, command in COMMANDS.items() if not name.startswith(SLOW)
           and any(parameter.written for parameter in command.parameters)]  # fmt: skip


@pytest.mark.parametrize("command", WRITING)
def test_a_signal_at_the_worst_moment_leaves_nothing_half_written(
    command, tmp_path, monkeypatch, capfd
):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr("os.fsync", lambda descriptor: signal.raise_signal(signal.SIGTERM))
    more = ["other.json"] if command == "plot psnr" else []
    outputs = {p.name: p.good for p in COMMANDS[command].parameters if p.written}
    assert main([*COMMANDS[command].line(**outputs), *more]) == 128 + signal.SIGTERM
    assert "interrupted" in capfd.readouterr().err
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert not new
    assert not list(tmp_path.rglob(".partial-*"))


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3)], ids=["gray", "color"])
def test_our_images_are_told_from_others(tmp_path, suffix, shape):
    image = np.zeros(shape, np.uint8)
    ours, other = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    write_image(ours, image)
    Image.fromarray(image).save(other)
    assert [is_marked(path) for path in (ours, other)] == [True, False]
    assert read_image(ours).shape[:2] == (9, 7)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_our_plots_are_told_from_others(tmp_path, suffix):
    ours, other = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    plot_training([tmp_path / "metrics.jsonl"], ours)
    Figure().savefig(other)
    assert [is_marked(path) for path in (ours, other)] == [True, False]


def test_originals_beside_their_measurements_are_not_overwritten(tmp_path, monkeypatch, capfd):
    """`reconstruct photo.tsm -o .` replaced photo.png."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("b", "c"):  # the second is in the way; not even the first may be written
        shutil.copy("y.tsm", f"{name}.tsm")
    Image.new("L", (30, 20)).save("c.png")
    photo = Path("c.png").read_bytes()
    words = ["reconstruct", "b.tsm", "c.tsm", "-o", ".", "-m", "small.safetensors"]
    assert main(words) == 2
    said = capfd.readouterr().err
    assert "c.png" in said
    assert "--force" in said
    assert Path("c.png").read_bytes() == photo
    assert not Path("b.png").exists()
    assert main([*words, "--force"]) == 0
    assert main(words) == 0  # over what we wrote


DRAWING = [name for name, command in COMMANDS.items()
           if any(parameter.name == "force" for parameter in command.parameters)]  # fmt: skip


@pytest.mark.parametrize("command", DRAWING)
def test_no_command_overwrites_an_image_of_others(command, tmp_path, monkeypatch, capfd):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    out = next(p for p in COMMANDS[command].parameters if p.name in ("plot", "out"))
    targets = {"demo": "new/demo.png", "reproduce": "new/rates.png"}
    target = Path(targets.get(command, "new.png"))
    target.parent.mkdir(exist_ok=True)
    Image.new("L", (3, 2)).save(target)
    before = target.read_bytes()
    more = ["other.json"] if command == "plot psnr" else []
    line = [*COMMANDS[command].line(**{out.name: out.good}), *more]
    assert main(line) == 2
    assert "--force" in capfd.readouterr().err
    assert target.read_bytes() == before
    if not command.startswith(("bench", "reproduce")):
        assert main([*line, "--force"]) == 0
        assert main(line) == 0


def test_every_command_that_writes_images_has_the_option_force():
    assert {name for name, command in COMMANDS.items()
            if any(p.written and p.good.endswith(".png") for p in command.parameters)
            } | {"demo", "reproduce"} == set(DRAWING)  # fmt: skip


def test_a_file_that_holds_nothing_may_be_replaced(tmp_path):
    (tmp_path / "made-by-mktemp.png").touch()
    require_image_target(tmp_path / "made-by-mktemp.png")


# A title for the window, a bell, a color, a line of our own, text that runs backwards.
HOSTILE = "a\x1b]0;owned\x07\x9b31m\nINJECTED\r\u202e\u2066\u2028:smile:[red]"


def test_what_a_terminal_would_obey_is_spelled_out():
    assert visible("a\x1b\n\u202e\udcff é×") == r"a\x1b\n\u202e\udcff é×"
    assert str(TersenseError(HOSTILE)) == str(TersenseWarning(HOSTILE)) == visible(HOSTILE)
    assert visible(visible(HOSTILE)) == visible(HOSTILE)


def rename_all(folder):
    """Give every input of `lay_out` a hostile name, and the model one inside; return old → new."""
    model = build_small_imager(HOSTILE)
    model.about = {"data": {"train": HOSTILE}, "recipe": HOSTILE, HOSTILE: HOSTILE}
    write_model(folder / "small.safetensors", model)
    names = {}
    for path in [*folder.iterdir(), *(folder / "pictures").iterdir()]:
        if path.name in ("config.toml", "bad", "pictures", "export"):
            continue
        new = path.with_name(f"{HOSTILE}{path.name}")
        path.rename(new)
        names[str(path.relative_to(folder))] = str(new.relative_to(folder))
    (folder / "pictures").rename(folder / f"{HOSTILE}pictures")
    config, new = (folder / "config.toml").read_text(), json.dumps(f"{HOSTILE}pictures")
    (folder / "config.toml").write_text(config.replace('"pictures"', new))
    return names | {"pictures": f"{HOSTILE}pictures"}


def check_screen(said):
    for text in (said.out, said.err):
        assert all(line.isprintable() for line in text.split("\n")), text
        assert text.count("INJECTED") == text.count(r"\nINJECTED"), text


# What cannot be said together with the rest.
APART = {"sense": {"counts", "importance"}, "plan": {"source", "values"}}


@pytest.mark.parametrize("command", [*WRITING, "info", "train", "bench methods"])
def test_names_do_not_command_the_terminal(command, tmp_path, monkeypatch, capfd):
    """`demo.png<ESC>]0;…` set the title of the window."""
    lay_out(tmp_path)
    names = rename_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    for console in (console_module.output, console_module.errors):
        monkeypatch.setattr(console, "_width", 2000)
    values = {
        p.name: f"{HOSTILE}{p.good}" if p.written else names.get(p.good, p.good)
        for p in COMMANDS[command].parameters
        if p.good and (p.kind is Path or p.metavar == "MODEL") and p.name != "manifest"
        and p.name not in APART.get(command, ())
    }  # fmt: skip
    if command == "bench methods":
        values = {"images": "none"}
    if command == "plan":
        values["model"] = names["adaptive.safetensors"]
    more = [names["other.json"]] if command == "plot psnr" else []
    if command == "evaluate":  # where another model decides
        values["model"] = values["decider"] = names["adaptive.safetensors"]
        more = ["--adaptive", "closed", "--rate", "0.2"]
    code = main([*COMMANDS[command].line(**values), *more])
    said = capfd.readouterr()
    assert code == 0 or command == "bench methods", said.err
    check_screen(said)
    failing = {name: f"{HOSTILE}/none/{value}" for name, value in values.items()}
    assert main(COMMANDS[command].line(**failing)) == 2
    check_screen(capfd.readouterr())


def test_failures_of_a_batch_do_not_command_the_terminal(tmp_path, monkeypatch, capfd):
    lay_out(tmp_path)
    names = rename_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path(names["pictures"], f"{HOSTILE}bad.png").write_bytes(b"noise")
    words = ["sense", names["pictures"], "-m", names["small.safetensors"], "-o", "new"]
    assert main(words) == 1
    said = capfd.readouterr()
    assert "1 of 3 files failed" in said.err
    check_screen(said)


def test_figures_of_any_name_are_exact_json(tmp_path):
    """A name that is no Unicode could not be written; others commanded the terminal by `cat`."""
    names = {"hostile": HOSTILE, "bytes": os.fsdecode(b"\xff\xfe.png"), "é×": ["\U0001f600\x7f"]}
    write_json(tmp_path / "a.json", names)
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == names
    assert all(line.isprintable() for line in text.split("\n"))
    assert "é×" in text


@pytest.mark.parametrize("path", sorted(Path(tersense.__file__).parent.glob("cli/*.py")),
                         ids=lambda path: path.stem)  # fmt: skip
def test_one_module_prints(path):
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Call)]  # fmt: skip
    printing = [f for f in calls if ast.unparse(f).split(".")[-1] in ("print", "echo", "secho")]
    assert not printing or path.stem == "console"
