"""The exported C, compiled and run: on this computer and on an emulated Cortex-M4."""

import re
import subprocess

import numpy as np
import pytest
from skimage import data

import tersense
from cameras import camera_of, random_camera
from tersense.export.base import export
from tersense.io.images import write_image

CAMERAS = {
    "shipped": lambda: tersense.load("paper-r25"),
    "lapped": lambda: random_camera(7, 16, 8),
    "window is no multiple of the stride": lambda: random_camera(5, 7, 3),
    "rows of 16 bits": lambda: random_camera(300, 8, 8, density=0.05),
    "measurements of 32 bits": lambda: random_camera(3, 16, 16, density=1.0),
    "a pixel that nobody looks at, an empty pattern": lambda: camera_of(
        np.array([[[1, 0], [0, -1]], [[0, 0], [0, 0]]], np.int8), 2
    ),
    "nothing but zeros": lambda: camera_of(np.zeros((2, 3, 3), np.int8), 3),
}


def run(folder, *command, stdin=None):
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def on_cortex_m4(folder, *arguments):
    """Run the compiled program in the emulator and return what it prints."""
    words = ",".join(f"arg={word}" for word in ("encoder", *arguments))
    return run(
        folder, "qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none",
        "-semihosting-config", f"enable=on,{words}", "-kernel", "encoder.elf",
    )  # fmt: skip


def read_table(text, shape):
    """Turn lines of windows into y (m, h, w)."""
    m, h, w = shape
    table = np.array([line.split(",") for line in text.splitlines() if line[0] != "#"], np.int64)
    return table.reshape(h, w, m).transpose(2, 0, 1)


@pytest.fixture(params=CAMERAS.values(), ids=CAMERAS.keys())
def exported(request, tmp_path):
    imager = request.param()
    export("c", imager, tmp_path / "c")
    return imager, tmp_path / "c"


@pytest.fixture
def shipped(tmp_path):
    imager = tersense.load("paper-r25")
    export("c", imager, tmp_path / "c")
    return imager, tmp_path / "c"


def test_the_vectors_and_images_of_any_size_are_sensed_as_sense_does(exported):
    imager, folder = exported
    assert ": 0 wrong" in run(folder, "make", "test")
    for height, width in ((1, 1), (33, 70), (64, 32)):
        image = data.camera()[100 : 100 + height, 200 : 200 + width]
        write_image(folder / "image.pgm", image)
        printed = run(folder, "./encoder", "image.pgm")
        assert printed.startswith(f"# height={height} width={width}\n")
        y = imager.sense(image).values
        np.testing.assert_array_equal(read_table(printed, y.shape), y)


def test_raw_windows_come_from_standard_input(shipped, rng):
    imager, folder = shipped
    run(folder, "make", "encoder")
    windows = rng.integers(0, 256, (5, 32, 32), np.uint8)
    printed = run(folder, "./encoder", "-", stdin=windows.tobytes())
    expected = [imager.sense(window).values.ravel() for window in windows]
    np.testing.assert_array_equal(read_table(printed, (256, 5, 1))[:, :, 0].T, expected)


def test_a_cortex_m4_measures_the_same(exported):
    imager, folder = exported
    assert ": 0 wrong" in run(folder, "make", "cortex-m4")
    image = data.camera()[50:97, 60:125]
    write_image(folder / "image.pgm", image)
    y = imager.sense(image).values
    np.testing.assert_array_equal(read_table(on_cortex_m4(folder, "image.pgm"), y.shape), y)


@pytest.mark.parametrize("target", ["test", "cortex-m4"])
def test_a_wrong_table_is_found_out(shipped, target):
    _, folder = shipped
    head, tables = (folder / "tables.c").read_text().split("tersense_rows[", 1)
    wrong = re.sub(r"\d+,", lambda row: f"{(int(row[0][:-1]) + 1) % 256},", tables, count=1)
    (folder / "tables.c").write_text(head + "tersense_rows[" + wrong)
    done = subprocess.run(["make", target], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert re.search(r"real .*: \d+ measurements are wrong", done.stdout)


@pytest.mark.parametrize("level", ["-O0", "-O2", "-Os", "-O3"])
def test_the_encoder_multiplies_nothing_and_needs_nothing(shipped, level):
    _, folder = shipped
    flags = ["-mcpu=cortex-m4", "-mthumb", "-std=c99", "-ffreestanding", level]
    for name in ("sense", "tables"):
        run(folder, "arm-none-eabi-gcc", *flags, "-c", f"{name}.c", "-o", f"{name}.o")
    listing = run(folder, "arm-none-eabi-objdump", "-d", "--no-show-raw-insn", "sense.o")
    mnemonics = set(re.findall(r"^\s+[0-9a-f]+:\t([a-z0-9.]+)", listing, re.MULTILINE))
    assert "ldrb.w" in mnemonics or "ldrb" in mnemonics  # the listing was understood
    assert not [name for name in mnemonics if re.search("mul|mla|mls|maal|smu|fm|div", name)]
    sizes = run(folder, "arm-none-eabi-size", "sense.o", "tables.o").splitlines()[1:]
    assert [line.split()[1:3] for line in sizes] == [["0", "0"]] * 2  # no variables
    undefined = set(run(folder, "arm-none-eabi-nm", "-u", "sense.o").split()) - {"U"}
    assert undefined <= {"tersense_counts", "tersense_rows", "memset"}  # memset: a compiler's own
