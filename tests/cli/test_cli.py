"""The program as a user meets it."""

import json
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
import tifffile
import typer
from PIL import Image
from skimage import data

import tersense
from tersense.cli.program import app, main
from tersense.errors import install_hint
from tersense.evaluation.metrics import psnr, ssim
from tersense.io.images import read_image, write_image
from tersense.measurements.manifest import Manifest
from tersense.models.zoo import WEIGHTS, names, read
from tersense.sensing.patterns import random_patterns

COMMANDS = (
    "demo", "models", "info", "sense", "reconstruct", "evaluate", "compare", "plan", "train",
    "reproduce",
    "bench sense", "bench reconstruct", "bench train", "bench methods",
    "export verilog", "export c", "export matrix", "export patterns", "export onnx",
    "export web",
    "plot training", "plot psnr", "plot patterns", "plot coverage", "plot strip", "plot counts",
    "app",
)  # fmt: skip


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    write_image(path, data.astronaut()[:70, 100:205])
    return path


def run(capsys, *arguments):
    """Run a command and return its exit code and what it printed."""
    code = main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_sense_then_reconstruct_gives_what_python_gives(capsys, tmp_path, photo):
    y, out = tmp_path / "photo.tsm", tmp_path / "again.png"
    assert run(capsys, "sense", photo, "-m", "paper-r25", "-o", y)[0] == 0
    assert run(capsys, "reconstruct", y, "-o", out)[0] == 0
    imager = tersense.load("paper-r25")
    measured = imager.sense(read_image(photo))
    np.testing.assert_array_equal(read(y).values, measured.values)
    np.testing.assert_array_equal(read_image(out), imager.reconstruct(measured))


def test_evaluate_prints_and_writes_the_same_figures(capsys, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    write_image(folder / "camera.png", data.camera()[:96, :96])
    write_image(folder / "moon.png", data.moon()[:64, :96])
    code, out, _ = run(capsys, "evaluate", folder, "--json", tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert code == 0
    for image in [*result["images"], result["mean"]]:
        assert f"{image['psnr']:.2f}" in out
    assert "0.25 measurements per pixel" in out


def test_evaluate_of_many_patches_prints_their_spread(capsys, tmp_path, rng):
    path = tmp_path / "patches.h5"
    with h5py.File(path, "w") as file:
        file["patches"] = rng.integers(0, 256, (201, 1024), dtype=np.uint8)
    code, out, _ = run(capsys, "evaluate", path, "--json", tmp_path / "r.json")
    assert code == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert len(result["images"]) == 201
    assert f"{result['spread']['psnr']['median']:.2f}" in out
    assert f"{result['mean']['psnr']:.2f}" in out
    assert out.count("\n") < 30


def test_demo_writes_an_image_and_a_table(capsys, tmp_path):
    code, out, _ = run(capsys, "demo", "-o", tmp_path / "demo")
    assert code == 0
    assert "PSNR" in out
    sheet = Image.open(tmp_path / "demo/demo.png")
    assert sheet.width > 3 * 451
    assert read(tmp_path / "demo/photograph.tsm").header.mode == "RGB"


def test_models_lists_what_is_built_in(capsys):
    _, out, _ = run(capsys, "models")
    for name in names():
        assert name in out


def test_info_states_the_figures(capsys):
    _, out, _ = run(capsys, "info", "paper-r25")
    for figure in ("256 of 32×32", "51 per pattern", "13,056 additions", "14.75 KiB", "6,831,104"):
        assert figure in out
    assert tersense.load("paper-r25").patterns.hash[:20] in out


def test_info_states_the_figures_at_a_lower_rate(capsys):
    _, out, _ = run(capsys, "info", "flex", "--rate", 0.1)
    assert "102 of 32×32" in out
    assert "0.09961 measurements per pixel" in out


@pytest.mark.parametrize(
    ("rate", "stated"), [((), "0.25"), (("--rate", 0.1), "0.09961"), (("--rate", 0.5), "0.5")]
)
def test_the_rate_that_is_asked_for_counts_more_than_that_of_a_name(capsys, rate, stated):
    _, out, _ = run(capsys, "info", "default", *rate)
    assert f" {stated} measurements per pixel" in out


def test_where_counts_differ_a_name_means_all_rows_of_its_model(capsys, tmp_path):
    write_image(tmp_path / "a.png", data.camera()[:64, :96])
    np.save(tmp_path / "counts.npy", np.array([[20, 400, 30], [512, 20, 20]]))
    command = ["sense", tmp_path / "a.png", "-o", tmp_path / "a.tsm"]
    assert run(capsys, *command, "--counts", tmp_path / "counts.npy")[0] == 0
    assert "1,002" in run(capsys, "info", tmp_path / "a.tsm")[1]
    # A rate that is named is that of the camera, which then has no more rows.
    few = run(capsys, *command, "--counts", tmp_path / "counts.npy", "--rate", 0.1)
    assert few[0] == 2
    assert "from 0 to 102" in few[2]


@pytest.mark.parametrize(
    "options", [("--rate", 0.5), ("--rate", 0.1, "--adaptive", "closed"), ("--bpp", 1.0), ()]
)
def test_the_name_that_took_measurements_reads_them_again(capsys, tmp_path, options):
    write_image(tmp_path / "a.png", data.camera()[:64, :96])
    y, name = tmp_path / "a.tsm", ("-m", "lapped-r25")
    assert run(capsys, "sense", tmp_path / "a.png", *name, *options, "-o", y)[0] == 0
    assert run(capsys, "reconstruct", y, *name, "-o", tmp_path / "b.png")[0] == 0
    assert run(capsys, "plot", "counts", y, *name, "-o", tmp_path / "counts.png")[0] == 0


def test_a_name_with_a_rate_decides_by_all_rows_of_its_model(capsys, tmp_path):
    write_image(tmp_path / "a.png", data.camera()[:64, :96])
    command = ["plot", "counts", tmp_path / "a.png", "-m", "default", "--rate", 0.1]
    assert run(capsys, *command, "-o", tmp_path / "counts.png")[0] == 0
    export = ["export", "c", "-m", "default", "--adaptive", "-o", tmp_path / "c"]
    assert run(capsys, *export)[0] == 0
    evaluate = ["evaluate", tmp_path, "-m", "lapped", "--adaptive", "closed", "--psnr", 25]
    assert run(capsys, *evaluate, "--decider", "default")[0] == 0


def test_info_states_the_figures_of_a_measurement_file(capsys, tmp_path):
    image, camera = data.astronaut()[:100, :70], tersense.load("flex").at_rate(0.1)
    y = camera.sense(image, bits=10, noise=3, seed=7)
    y.save(tmp_path / "y.tsm")
    code, out, _ = run(capsys, "info", tmp_path / "y.tsm")
    assert code == 0
    count = f"{3 * 102 * 4 * 3:,}"
    content = (tmp_path / "y.tsm").read_bytes()
    size = len(content)
    out = " ".join(out.replace("│", " ").split())
    for figure in (
        "70×100, color",
        "102 of 32×32",
        count,
        "10 bits",
        "deviation 3, seed 7",
        f"{8 * size / (3 * 7000):.3g} bits per pixel of each channel; {size:,} bytes",
        "flex",
    ):
        assert figure in out


def test_measurements_have_a_rate_of_their_own(capsys):
    code, _, err = run(capsys, "info", "y.tsm", "--rate", 0.1)
    assert code == 2
    assert err == "tersense: Invalid value: y.tsm has a rate of its own; leave --rate out\n"


def test_info_of_measurements_by_patterns_that_nobody_knows(capsys, tmp_path):
    np.save(tmp_path / "mine.npy", np.eye(8, dtype=np.int8)[None])
    tersense.load(tmp_path / "mine.npy").sense(data.camera()).save(tmp_path / "y.tsm")
    _, out, _ = run(capsys, "info", tmp_path / "y.tsm")
    assert "512×512, gray" in out
    assert "exact" in out
    assert "exact" in out
    assert "none that comes with the package" in out


def test_export_answers_what_a_designer_asks(capsys, tmp_path):
    code, out, _ = run(capsys, "export", "verilog", "-m", "paper-r25", "-o", tmp_path / "out")
    assert code == 0
    for figure in ("13,056", "12.75", "14.75 KiB", "262,144", "256.00 KiB", "1024.00 KiB"):
        assert figure in out
    assert Manifest.read(tmp_path / "out").model == "paper-r25"


def test_train_trains(capsys, tmp_path):
    changes = {
        "train.out": tmp_path / "run",
        "train.epochs": 1,
        "data.samples": 1000,
        "train.batch": 100,
        "reconstructor.hidden": "[16]",
    }
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    code, _, err = run(capsys, "train", "configs/quick.toml", *sets)
    assert code == 0
    assert "10 steps" in err
    assert tersense.load(tmp_path / "run/model.safetensors").phi.shape == (64, 16, 16)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(capsys, command):
    code, out, _ = run(capsys, *command.split(), "--help")
    assert code == 0
    assert f"Example: tersense {command}" in out


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"tersense {tersense.__version__}\n", "")


def corrupt_image(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    return ["sense", tmp_path / "bad.png", "-o", tmp_path / "out.tsm"], "not a readable image"


def missing_image(tmp_path):
    return ["sense", tmp_path / "none.png", "-o", tmp_path / "out.tsm"], "no such image"


def truncated_model(tmp_path):
    whole = (WEIGHTS / "paper-r25.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    arguments = ["sense", tmp_path / "photo.png", "-o", tmp_path / "out.tsm"]
    return [*arguments, "-m", tmp_path / "cut.safetensors"], "not a usable model file"


def unknown_model(tmp_path):
    arguments = ["sense", tmp_path / "photo.png", "-o", tmp_path / "out.tsm"]
    return [
        *arguments,
        "-m",
        "paper-r99",
    ], "built in: block-r25, fast, flex, lapped, large"


def impossible_rate(tmp_path):
    arguments = ["sense", tmp_path / "photo.png", "-o", tmp_path / "out.tsm"]
    return [*arguments, "--rate", "0.6"], "rate 0.6 needs 614 rows, but lapped has 512"


def rate_of_nothing(tmp_path):
    arguments = ["sense", tmp_path / "photo.png", "-o", tmp_path / "out.tsm"]
    return [*arguments, "--rate", "0"], "must be a number above 0"


def rate_that_is_no_number(tmp_path):
    arguments = ["sense", tmp_path / "photo.png", "-o", tmp_path / "out.tsm"]
    return [*arguments, "--rate", "much"], "--rate.*number"


def output_in_a_missing_folder(tmp_path):
    return ["sense", tmp_path / "photo.png", "-o", tmp_path / "none/out.tsm"], "does not exist"


def output_that_is_a_folder(tmp_path):
    (tmp_path / "folder.json").mkdir()
    return ["evaluate", tmp_path, "--json", tmp_path / "folder.json"], "is a folder"


def measurements_of_other_patterns(tmp_path):
    y = tersense.load("paper-r25").sense(np.zeros((8, 8), np.uint8))
    alien = tersense.Measurements(y.values, type(y.header)(**{**vars(y.header), "phi": "ab" * 32}))
    alien.save(tmp_path / "alien.tsm")
    arguments = ["reconstruct", tmp_path / "alien.tsm", "-o", tmp_path / "out.png"]
    own = tersense.load("paper-r25").patterns.hash[:12]
    return [*arguments, "-m", "paper-r25"], rf"abababababab….*{own}…"


def measurements_of_unknown_patterns(tmp_path):
    arguments, _ = measurements_of_other_patterns(tmp_path)
    return arguments[:-2], "no built-in model has the patterns abababababab"


def no_measurements(tmp_path):
    return ["reconstruct", tmp_path / "photo.png", "-o", tmp_path / "out.png"], "measurement file"


def unknown_image_format(tmp_path):
    tersense.load("paper-r25").sense(np.zeros((8, 8), np.uint8)).save(tmp_path / "y.tsm")
    return ["reconstruct", tmp_path / "y.tsm", "-o", tmp_path / "out.xyz"], "ending in one of"


def empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    return ["evaluate", tmp_path / "empty"], "no images"


def unknown_option(tmp_path):
    return ["evaluate", tmp_path, "--strid", "2"], "--strid"


def unknown_setting(tmp_path):
    return ["train", "configs/quick.toml", "--set", "train.epoch=3"], "did you mean epochs"


def missing_config(tmp_path):
    return ["train", tmp_path / "none.toml"], "cannot read"


def no_training_data(tmp_path):
    return ["train", "configs/paper.toml", "--set", f"train.out={tmp_path}/out"], "data.train"


def no_gpu(tmp_path):
    return ["evaluate", tmp_path, "--device", "tpu"], "'tpu' is not one of 'auto', 'cpu', 'cuda'"


def export_into_a_folder_that_is_not_empty(tmp_path):
    return ["export", "verilog", "-o", tmp_path], "not empty; name a new folder"


def impossible_lanes(tmp_path):
    return ["export", "verilog", "-o", tmp_path / "out", "--lanes", "3"], "a power of two"


MISTAKES = [
    corrupt_image, missing_image, truncated_model, unknown_model, impossible_rate, rate_of_nothing,
    rate_that_is_no_number, output_in_a_missing_folder, output_that_is_a_folder,
    measurements_of_other_patterns, measurements_of_unknown_patterns, no_measurements,
    unknown_image_format, empty_folder, unknown_option, unknown_setting, missing_config,
    no_training_data, no_gpu, export_into_a_folder_that_is_not_empty, impossible_lanes,
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line_and_leaves_nothing(capsys, tmp_path, photo, mistake):
    arguments, expected = mistake(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert re.search(expected, err)
    assert err.count("\n") == 1
    assert err.startswith("tersense: ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--rounds", "0"), "'--rounds': must be at least 1, got 0"),
        (("--rounds", "2.5"), "'--rounds': must be a whole number, got 2.5"),
        (("--psnr", "nan"), "'--psnr': must be at most 80, got nan"),
        (("--quality", "fine"), "'--quality': must be a number, got fine"),
        (("--rate", "nan", "--adaptive", "open"), "rate must be a number above 0, as 0.1, got nan"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_numbers_are_told_with_what_is_allowed(capsys, tmp_path, photo, option, said):
    code, _, err = run(capsys, "evaluate", photo, "-m", "fast", *option)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_an_existing_result_survives_a_failed_command(capsys, tmp_path):
    (tmp_path / "out.tsm").write_text("precious")
    arguments, _ = corrupt_image(tmp_path)
    run(capsys, *arguments)
    assert (tmp_path / "out.tsm").read_text() == "precious"


@pytest.fixture
def nested(tmp_path):
    """Patterns of one's own, reconstructed by the best linear estimate, from any count."""
    np.save(tmp_path / "phi.npy", random_patterns(40, 16, 0.1).phi)
    return tmp_path / "phi.npy"


def test_windows_take_the_counts_of_a_file(capsys, tmp_path, photo, nested):
    y, again = tmp_path / "y.tsm", tmp_path / "again.png"
    image = read_image(photo)
    imager = tersense.load(nested)
    counts = np.arange(np.prod(imager.geometry.grid(*image.shape[:2]))) % 41
    counts = counts.reshape(imager.geometry.grid(*image.shape[:2]))
    np.save(tmp_path / "counts.npy", counts)
    command = ("sense", photo, "-m", nested, "--counts", tmp_path / "counts.npy", "-o", y)
    code, out, _ = run(capsys, *command)
    measured = imager.sense(image, counts=counts)
    assert code == 0
    assert f"{measured.taken:,} measurements, {measured.per_pixel:.4g} and" in " ".join(out.split())
    np.testing.assert_array_equal(read(y, nested).values, measured.values)
    told = " ".join(run(capsys, "info", y)[1].split())
    assert f"fewest 0, mean {counts.mean():.4g}, most 34" in told
    assert run(capsys, "reconstruct", y, "-m", nested, "-o", again)[0] == 0
    np.testing.assert_array_equal(read_image(again), imager.reconstruct(measured))


def test_important_windows_take_more_within_the_budget(capsys, tmp_path, photo, nested):
    image, y = read_image(photo), tmp_path / "y.tsm"
    weights = np.zeros(image.shape[:2], np.uint8)
    weights[:16, :32] = 255
    weights[16:32] = 60
    write_image(tmp_path / "weights.png", weights)
    command = ("sense", photo, "-m", nested, "--importance", tmp_path / "weights.png", "-o", y)
    assert run(capsys, *command, "--rate", 0.05)[0] == 0
    measured, budget = read(y, nested), 12  # ⌊0.05·16²⌋ for each window
    assert measured.counts.sum() == budget * measured.counts.size
    assert (measured.counts[0, :2] == 40).all()
    assert measured.counts[0, 2:].max() < measured.counts[1].min()
    uniform = tersense.load(nested).at_rate(0.05).sense(image)
    assert measured.taken == uniform.taken


def test_what_counts_cannot_be_is_one_line(capsys, tmp_path, photo, nested):
    y, counts, small = tmp_path / "y.tsm", tmp_path / "counts.npy", tmp_path / "small.png"
    np.save(counts, np.full((2, 2), 3))
    write_image(small, np.zeros((5, 5), np.uint8))
    for model, options, reason in (
        (nested, ("--counts", counts), "counts per window must have shape"),
        (nested, ("--importance", small), "--importance shares out the measurements of --rate"),
        (nested, ("--importance", small, "--rate", 0.1), "must have the size of the image"),
        (nested, ("--importance", small, "--counts", counts), "give one of them"),
        ("paper-r25", ("--counts", counts), "needs all 256 rows of every window"),
    ):
        code, _, err = run(capsys, "sense", photo, "-m", model, *options, "-o", y)
        assert code == 2
        assert reason in " ".join(err.split())
        assert not y.exists()


@pytest.fixture
def raw(tmp_path):
    """A photograph of 12 bits as a program for cameras writes it: values from 0 to 4095."""
    deep = np.rint(data.astronaut()[:70, 100:205] * (4095 / 255)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "raw.tif", deep, photometric="rgb")
    Image.fromarray(deep[..., 1].copy()).save(tmp_path / "gray.png")
    return deep


@pytest.mark.parametrize("name", ["raw.tif", "gray.png"])
def test_deep_pixels_go_all_the_way(capsys, tmp_path, raw, name):
    photo, y, again = tmp_path / name, tmp_path / "y.tsm", tmp_path / "again.png"
    original = raw if name == "raw.tif" else raw[..., 1]
    command = ("sense", photo, "-m", "paper-r25", "--depth", 12, "-o", y)
    code, _, err = run(capsys, *command)
    assert code == 0
    assert "reduced" not in err  # nothing is lost, nothing is said
    imager = tersense.load("paper-r25")
    measured = imager.sense(original, depth=12)
    np.testing.assert_array_equal(read(y).values, measured.values)
    assert "12 bits per pixel" in run(capsys, "info", y)[1]
    for out in (again, tmp_path / "again.tif"):
        assert run(capsys, "reconstruct", y, "-o", out)[0] == 0
        np.testing.assert_array_equal(read_image(out, depth=12), imager.reconstruct(measured))
    code, out, _ = run(capsys, "compare", again, photo, "--depth", 12, "-o", tmp_path / "map.png")
    picture = imager.reconstruct(measured)
    assert code == 0
    assert f"{psnr(picture, original, 4095):.2f} dB" in out
    assert f"{ssim(picture, original, 4095):.4f}" in out
    command = ("evaluate", photo, "-m", "paper-r25", "--color", "--depth", 12)
    _, out, _ = run(capsys, *command, "--json", tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    estimate = np.clip(imager.estimate(measured), 0, 4095)
    assert result["mean"]["psnr"] == pytest.approx(psnr(estimate, original, 4095))
    assert result["depth"] == 12
    assert "12 bits per pixel" in out


def test_what_deep_pixels_cannot_be_is_one_line(capsys, tmp_path, raw, photo):
    y = tmp_path / "y.tsm"
    for image, depth, reason in (
        (photo, 12, "it has 8 bits per pixel, not 12; leave the depth out"),
        (tmp_path / "raw.tif", 10, "depth must be at least 12 bits for a value of"),
        (tmp_path / "raw.tif", 99, "depth must be from 8 to 16 bits per pixel, got 99"),
    ):
        code, _, err = run(capsys, "sense", image, "-m", "paper-r25", "--depth", depth, "-o", y)
        assert code != 0
        assert reason in " ".join(err.split())
        assert not y.exists()
    run(capsys, "sense", tmp_path / "raw.tif", "-m", "paper-r25", "--depth", 12, "-o", y)
    code, _, err = run(capsys, "reconstruct", y, "-o", tmp_path / "small.jpg")
    assert code != 0
    assert "pixels of 12 bits need a file ending in one of .png" in " ".join(err.split())
    assert not (tmp_path / "small.jpg").exists()


def test_compare_prints_the_metrics_and_draws_the_error(tmp_path, capsys):
    a, b = data.coffee()[:64, :80], data.coffee()[:64, :80].copy()
    b[10:20, 10:20] = 255 - b[10:20, 10:20]
    write_image(tmp_path / "a.png", a)
    write_image(tmp_path / "b.png", b)
    command = ["compare", str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    assert main([*command, "-o", str(tmp_path / "map.png")]) == 0
    printed = capsys.readouterr().out
    assert f"{psnr(a, b):.2f} dB" in printed
    assert f"{ssim(a, b):.4f}" in printed
    assert "80×64, color, PSNR over all channels" in printed
    assert read_image(tmp_path / "map.png").shape[1] > 2 * 80
    write_image(tmp_path / "b.png", b[:32])
    assert main(command) == 2
    assert "80×32, color, got 80×64, color" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["sense"], ["plot", "psnr"]])
def test_h_is_help(command, capsys):
    assert main([*command, "-h"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_standard_output_is_refused_everywhere(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "a.png", data.camera()[:16, :16])
    for command in (["sense", "a.png"], ["demo"], ["plot", "patterns"], ["export", "c"],
                    ["compare", "a.png", "a.png"]):  # fmt: skip
        assert main([*command, "-o", "-"]) == 2
        assert "name a file or a folder, not -" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png"]


def test_model_names_are_completed_without_torch():
    code = (
        "import sys\nfrom tersense.cli.options import complete_model\n"
        "assert complete_model('block-') == ['block-r25'], complete_model('block-')\n"
        "assert 'default' in complete_model('')\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_device_option_begins_with_auto():
    found = [
        parameter.default
        for _, command in walk(typer.main.get_command(app))
        for parameter in command.params if parameter.name == "device"
    ]  # fmt: skip
    assert len(found) >= 5
    assert set(found) == {"auto"}


def walk(command, prefix=""):
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, f"{prefix}{name} ")
    if not hasattr(command, "commands"):
        yield prefix, command


def test_what_was_dropped_is_one_line(tmp_path, capsys):
    Image.fromarray(np.zeros((8, 8, 4), np.uint8)).save(tmp_path / "a.png")
    command = ["sense", str(tmp_path / "a.png"), "-m", "paper-r25", "-o", str(tmp_path / "a.tsm")]
    assert main(command) == 0
    assert capsys.readouterr().err.startswith(f"tersense: note: {tmp_path}/a.png: transparency")


def test_hints_name_an_install_command_that_works_in_a_clone(tmp_path, monkeypatch):
    from tersense import errors

    assert install_hint("plot") == ".venv/bin/pip install -c constraints.txt -e '.[plot]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/tersense/errors.py"))
    assert install_hint("plot") == "pip install 'tersense[plot]'"


def test_a_reader_who_leaves_is_no_interruption():
    """`tersense … | head`: nothing is said of it."""
    command = f"{sys.executable} -m tersense evaluate -h | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
