"""The exported C, compiled and run: on this computer and on an emulated Cortex-M4."""

import re
import subprocess

import numpy as np
import pytest
from skimage import data

import tersense
from cameras import camera_of, random_camera
from reference import sense_by_windows
from tersense.cli.program import main
from tersense.export.arithmetic import deepen, read_steps
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
    for height, width in ((1, 1), (33, 70)):
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


# Deeper pixels, codes, lines.

DEEP = {
    "shipped, 12 bits": (lambda: tersense.load("paper-r25"), {"depth": 12}),
    "lapped, 12 bits, codes of 10": (lambda: random_camera(7, 16, 8), {"depth": 12, "bits": 10}),
    "16 bits, clipped codes": (
        lambda: random_camera(5, 7, 3),
        {"depth": 16, "bits": 9, "step": 777},
    ),
    "9 bits, steps of a power of two": (
        lambda: random_camera(6, 9, 4),
        {"depth": 9, "bits": 6, "step": 64},
    ),
    "12 bits, a step for each row": (
        lambda: random_camera(5, 7, 3),
        {"depth": 12, "bits": 7, "steps": (1, 300, 777, 64, 100)},
    ),
}


def photograph_of(height, width, depth):
    """Cut a part of a photograph, with lower bits that are not the upper ones again."""
    image = deepen(data.camera()[90 : 90 + height, 180 : 180 + width], depth).astype(np.uint16)
    return image ^ (np.arange(image.size).reshape(image.shape) % 2 ** (depth - 8)).astype(np.uint16)


def write_deep_pgm(path, image, depth):
    """Write a PGM of more than 8 bits: two bytes a pixel, the higher one first."""
    height, width = image.shape
    head = f"P5\n# a comment\n{width} {height}\n{2**depth - 1}\n".encode()
    path.write_bytes(head + image.astype(">u2").tobytes())


def expect(imager, image, bits=None, step=None, depth=8, steps=None):
    """Return sums of pixels in plain integers, or their codes, rounded half up."""
    y = sense_by_windows(imager.phi, imager.patterns.stride, image)
    if bits is None:
        return y
    largest = 2 ** (bits - 1) - 1
    plus, minus = imager.patterns.signs_per_row
    if steps:
        step = np.array(steps)[:, None, None]
    else:
        step = step or -(-(2**depth - 1) * max(plus.max(), minus.max()) // largest)
    return ((2 * y + step) // (2 * step)).clip(-largest, largest)


@pytest.mark.parametrize("name", DEEP)
def test_deep_pixels_and_codes_are_those_of_plain_integers(tmp_path, name):
    make, options = DEEP[name]
    imager, folder = make(), tmp_path / "c"
    manifest, _ = export("c", imager, folder, **options)
    assert manifest.pixel_bits == options["depth"]
    assert ": 0 wrong" in run(folder, "make", "test")
    assert ": 0 wrong" in run(folder, "make", "cortex-m4")
    image = photograph_of(37, 70, options["depth"])
    write_deep_pgm(folder / "image.pgm", image, options["depth"])
    y = expect(imager, image, **options)
    assert len(np.unique(y)) > 20
    np.testing.assert_array_equal(read_table(run(folder, "./encoder", "image.pgm"), y.shape), y)
    np.testing.assert_array_equal(read_table(on_cortex_m4(folder, "image.pgm"), y.shape), y)


@pytest.mark.parametrize("name", ["lapped, 12 bits, codes of 10", "12 bits, a step for each row"])
def test_nothing_is_read_or_written_outside_and_nothing_overflows(tmp_path, name):
    make, options = DEEP[name]
    imager, folder = make(), tmp_path / "c"
    export("c", imager, folder, **options)
    assert ": 0 wrong" in run(folder, "make", "sanitize")
    for size in ((1, 1), (2, 50), (40, 3)):
        image = photograph_of(*size, options["depth"])
        write_deep_pgm(folder / "image.pgm", image, options["depth"])
        y = expect(imager, image, **options)
        np.testing.assert_array_equal(read_table(run(folder, "./checked", "image.pgm"), y.shape), y)


@pytest.mark.parametrize(
    ("fault", "right", "wrong"),
    [
        ("left border", "place < first", "place < 0 * first"),
        ("right border", "if (last > TERSENSE_WINDOW)", "if (last > 0)"),
        ("rows that take turns", "row % TERSENSE_OPEN", "0 * row"),
        ("rows at the bottom", "image->line == image->height", "0"),
        ("start from zero", "y[k] = 0", "y[k] = 1"),
    ],
)
def test_the_vectors_notice_a_fault_in_the_lines(tmp_path, fault, right, wrong):
    export("c", random_camera(5, 7, 3), tmp_path / "c")
    path = tmp_path / "c/lines.c"
    source = path.read_text()
    assert source.count(right) == 1
    path.write_text(source.replace(right, wrong))
    done = subprocess.run(["make", "test"], cwd=tmp_path / "c", capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search(r"line by line: [1-9]\d* wrong", done.stdout), done.stdout + done.stderr


def test_codes_are_those_of_a_recorded_measurement(tmp_path, capsys, refused):
    imager, image = tersense.load("paper-r25"), data.camera()[30:130, 90:201]
    recorded, path = imager.sense(image, bits=6), str(tmp_path / "y.tsm")
    recorded.save(path)
    folder = tmp_path / "c"
    assert main(["export", "c", "-m", "paper-r25", "-o", str(folder), "--steps", path]) == 0
    assert ": 0 wrong" in run(folder, "make", "test")
    write_image(folder / "image.pgm", image)
    printed = read_table(run(folder, "./encoder", "image.pgm"), recorded.values.shape)
    np.testing.assert_array_equal(printed, recorded.values)
    # Steps by themselves do not tell the bits; a file of exact values has none.
    np.save(tmp_path / "steps.npy", recorded.header.readout.steps)
    assert read_steps(tmp_path / "steps.npy", 6) == (*read_steps(path)[:2], ())
    imager.sense(image).save(tmp_path / "exact.tsm")
    np.save(tmp_path / "square.npy", np.ones((3, 3)))
    for name, bits, said in [("steps.npy", None, "--bits"), ("y.tsm", 7, "6 bits, not 7"),
                             ("exact.tsm", 6, "no step for each row"),
                             ("square.npy", 6, "list of steps")]:  # fmt: skip
        with refused(said, name):
            read_steps(tmp_path / name, bits)


def test_pixels_of_another_depth_are_refused(tmp_path):
    export("c", random_camera(5, 7, 3), tmp_path / "c", depth=12)
    run(tmp_path / "c", "make", "encoder")
    write_image(tmp_path / "c/image.pgm", data.camera()[:9, :9])
    write_deep_pgm(tmp_path / "c/bright.pgm", np.full((9, 9), 5000), 12)
    for name, said in (("image.pgm", "12 bits"), ("bright.pgm", "more than 12 bits")):
        done = subprocess.run(["./encoder", name], cwd=tmp_path / "c", capture_output=True)
        assert done.returncode == 2
        assert said in done.stderr.decode()
