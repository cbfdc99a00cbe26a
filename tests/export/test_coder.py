"""The exported coder, in C and Verilog: the bytes of Python, and what Python makes of them."""

import json
import re
import subprocess
from collections import Counter

import numpy as np
import pytest
from skimage import data

import tersense
from cameras import camera_of, random_camera
from deciders import deciding_camera
from readmes import check_readme, indented
from reference import sense_by_windows
from tersense.cli.program import main
from tersense.export.arithmetic import Quantizer
from tersense.export.base import export
from tersense.export.coder import code_image, make_images, term_memory
from tersense.export.coder_verilog import write_coder, write_images
from tersense.io.images import write_image
from tersense.measurements.rice import KEPT, RiceCoder
from tools import run_tool

CAMERAS = {
    "exact": (lambda: random_camera(36, 8, 8), {}),
    "lapped, codes": (lambda: random_camera(7, 16, 8), {"bits": 8, "step": 37}),
    "a step for each row": (
        lambda: random_camera(5, 7, 3),
        {"depth": 12, "bits": 7, "steps": (1, 300, 777, 64, 100)},
    ),
    "words of 64 bits": (
        lambda: random_camera(34, 5, 5),
        {"depth": 16, "bits": 32, "step": 1},
    ),
    "counts": (deciding_camera, {"adaptive": True}),
    "nothing but zeros": (lambda: camera_of(np.zeros((2, 3, 3), np.int8), 3), {}),
}


@pytest.fixture(params=CAMERAS.values(), ids=CAMERAS.keys())
def camera(request):
    make, options = request.param
    return make(), options


def coder_of(manifest):
    return RiceCoder.from_details(manifest.details["coder"], manifest.rows)


def test_c_makes_the_bytes_of_python(tmp_path, camera):
    imager, options = camera
    manifest, _ = export("c", imager, tmp_path / "c", coder="rice", **options)
    folder, depth = tmp_path / "c/coder", options.get("depth", 8)
    assert ": 0 bytes wrong" in run_tool(folder, "make", "sanitize")
    image = data.camera()[80:117, 190:260].astype(np.uint16) << (depth - 8)
    head = f"P5\n70 37\n{2**depth - 1}\n".encode()
    (folder / "image.pgm").write_bytes(head + image.astype(">u2" if depth > 8 else "u1").tobytes())
    run_tool(folder, str(folder / "checked"), "image.pgm", "y.rice")
    y = tersense.read_measured(folder / "y.rice", tmp_path / "c", image.shape)
    sums = sense_by_windows(imager.phi, imager.patterns.stride, image)
    expected = sums if y.header.readout.exact else y.header.readout.apply(sums)
    np.testing.assert_array_equal(y.values, expected)
    assert (folder / "y.rice").read_bytes() == coder_of(manifest).encode(y.values, y.counts)


@pytest.mark.parametrize("name", ["exact", "words of 64 bits", "counts"])
def test_a_cortex_m4_makes_the_bytes_of_python(tmp_path, name):
    make, options = CAMERAS[name]
    export("c", make(), tmp_path / "c", coder="rice", **options)
    assert ": 0 bytes wrong" in run_tool(tmp_path / "c/coder", "make", "cortex-m4")


@pytest.mark.parametrize("options", [{}, {"bits": 9, "step": 20}], ids=["exact", "codes"])
def test_a_camera_that_decides_sends_what_it_decided(tmp_path, options):
    imager = deciding_camera(fall=2)
    export("c", imager, tmp_path / "c", adaptive=True, coder="rice", **options)
    folder, image = tmp_path / "c/coder", data.camera()[100:180, 150:260]
    run_tool(folder, "make", "coder")
    write_image(folder / "image.pgm", image)
    run_tool(folder, str(folder / "coder"), "image.pgm", "y.rice", "9")
    y = tersense.read_measured(folder / "y.rice", tmp_path / "c", image.shape)
    sums = imager.sense(image).values
    counts = imager.camera.decision.decide(sums, 9 * sums[0].size)
    np.testing.assert_array_equal(y.counts, counts)
    assert len(np.unique(counts)) > 2
    sent = np.where(np.arange(20)[:, None, None] < counts, y.header.readout.apply(sums), 0)
    np.testing.assert_array_equal(y.values, sent)


def test_the_coder_multiplies_nothing_and_needs_nothing(tmp_path):
    export("c", random_camera(40, 8, 8), tmp_path / "c", bits=9, coder="rice")
    folder = tmp_path / "c/coder"
    flags = ["-mcpu=cortex-m4", "-mthumb", "-std=c99", "-ffreestanding", "-I..", "-O2"]
    run_tool(folder, "arm-none-eabi-gcc", *flags, "-c", "rice.c", "-o", "rice.o")
    listing = run_tool(folder, "arm-none-eabi-objdump", "-d", "--no-show-raw-insn", "rice.o")
    mnemonics = set(re.findall(r"^\s+[0-9a-f]+:\t([a-z0-9.]+)", listing, re.MULTILINE))
    assert "ldrh.w" in mnemonics or "ldrh" in mnemonics  # the listing was understood
    assert not [name for name in mnemonics if re.search("mul|mla|mls|maal|smu|fm|div", name)]
    (sizes,) = run_tool(folder, "arm-none-eabi-size", "rice.o").splitlines()[1:]
    assert sizes.split()[1:3] == ["0", "0"]
    undefined = set(run_tool(folder, "arm-none-eabi-nm", "-u", "rice.o").split()) - {"U"}
    assert undefined == {"tersense_terms", "tersense_quantize"}


# Verilog.


def build(folder, counted):
    flags = ["-g2005", "-Wall", *(["-DCOUNTED"] if counted else [])]
    sources = "coder.v", "tersense_rice.v", "testbench_coder.v", "../tersense_rom.v"
    done = subprocess.run(["iverilog", *flags, "-o", "sim", *sources], cwd=folder,
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def simulate(folder, stall=50, seed=1):
    """Run the testbench; return values, bytes and clocks."""
    printed = run_tool(folder, "vvp", "sim", f"+stall={stall}", f"+seed={seed}")
    verdict = re.search(r"PASS: (\d+) values, (\d+) bytes, (\d+) clocks", printed)
    assert verdict, printed
    return tuple(map(int, verdict.groups()))


def test_verilog_makes_the_bytes_of_python(tmp_path, camera):
    imager, options = camera
    manifest, _ = export("verilog", imager, tmp_path / "v", coder="rice", **options)
    folder, counted = tmp_path / "v/coder", "adaptive" in options
    build(folder, counted)
    assert simulate(folder, 0)[0] == simulate(folder, 60, 7)[0] > 0
    random, coder = np.random.default_rng(3), coder_of(manifest)
    half = 2 ** (coder.bits - 1)
    images = []
    for _ in range(3):
        size = 2.0 ** -random.uniform(0, coder.bits)
        y = random.laplace(0, half * size / 4, (coder.rows, 2, 5)).clip(-half, half - 1)
        counts = random.integers(0, coder.rows + 1, (2, 5)).astype(np.int32) if counted else None
        images.append(code_image(coder, y.astype(np.int64), counts))
    write_images(folder, coder, images, imager.patterns.stride)
    build(folder, counted)
    assert simulate(folder, 30)[0] == sum(len(image.given) for image in images)


def test_codes_with_counts_are_coded_in_verilog_too(tmp_path):
    """A decider sees sums; whoever puts a quantizer behind it has this."""
    imager = random_camera(40, 8, 8)
    export("verilog", imager, tmp_path / "v")
    plain = RiceCoder(6, ((), *(((row - 1) % KEPT % row,) * 3 for row in range(1, 40))), True)
    images = make_images(plain, imager.patterns, 8, Quantizer(6, 70, -13005, 13005))
    write_coder(imager, plain, images, tmp_path / "v/coder", 32, 24)
    build(tmp_path / "v/coder", True)
    assert simulate(tmp_path / "v/coder")[0] == sum(len(image.given) for image in images)


def test_a_window_takes_the_clocks_that_the_manifest_tells(tmp_path):
    imager = random_camera(70, 8, 8)
    manifest, _ = export("verilog", imager, tmp_path / "v", coder="rice")
    coder, folder = coder_of(manifest), tmp_path / "v/coder"
    assert np.mean([len(terms) for terms in coder.terms]) > 3
    write_images(folder, coder, [code_image(coder, np.zeros((70, 2, 10), int))], 8)
    build(folder, False)
    clocks = simulate(folder, 0)[2]
    assert clocks == pytest.approx(20 * manifest.details["coder"]["clocks_per_window"], rel=0.02)


FAULTS = {
    "wrap": ("{{FRACTION_BITS{one_new[BITS-1]}}, one_new}", "{{FRACTION_BITS{1'b0}}, one_new}"),
    "sign of a term": ("minus ? told - scaled : told + scaled", "told + scaled"),
    "no weight": ("step && word[7:5] != 3'd7", "step"),
    "kept rows": ("if (hand && row < KEPT)", "if (hand)"),
    "window before": ("if (row == 0) left <= y;", ""),
    "rows that are known": ("row < known ? kept_mean : running", "kept_mean"),
    "too many ones": ("ones <= ones + 1'b1;", "ones <= 5'd0;"),
    "a new image": ("left    <= {BITS{1'b0}};\n                    running", "running"),
    "last byte": ("final_one && (ends || writing == FILL)", "final_one && ends"),
    "held output": ("wire room  = !byte_valid || byte_ready", "wire room  = 1'b1"),
    "idle": ("assign idle = writing == IDLE", "assign idle = 1'b1"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """An exported coder, and what its module says."""
    folder = tmp_path_factory.mktemp("faults") / "v"
    export("verilog", random_camera(34, 6, 6), folder, coder="rice")
    return folder / "coder", (folder / "coder/tersense_rice.v").read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_testbench_notices_a_fault(sources, fault):
    (folder, source), (right, wrong) = sources, FAULTS[fault]
    assert source.count(right) == 1
    (folder / "tersense_rice.v").write_text(source.replace(right, wrong))
    build(folder, False)
    assert "FAIL" in run_tool(folder, "vvp", "sim")


def test_encoder_and_coder_in_one_give_the_stream_of_the_image(tmp_path):
    imager, folder = random_camera(12, 8, 4), tmp_path / "v"
    options = {"bits": 7, "step": 30, "width": 21, "height": 14}
    export("verilog", imager, folder, coder="rice", **options)
    image = data.camera()[200:214, 130:151]
    (folder / "pixels.mem").write_text("\n".join(f"{value:02x}" for value in image.flat))
    (folder / "joined.v").write_text(JOINED)
    sources = "joined.v encoder.v tersense_*.v coder/coder.v coder/tersense_rice.v"
    command = f"cp coder/terms.mem . && iverilog -g2005 -s joined -o sim {sources} && vvp sim"
    run_tool(folder, "sh", "-c", command)
    words = (folder / "bytes.txt").read_text().split()
    (folder / "y.rice").write_bytes(bytes(int(word, 16) for word in words))
    y = tersense.read_measured(folder / "y.rice", folder, image.shape)
    sums = sense_by_windows(imager.phi, 4, image)
    np.testing.assert_array_equal(y.values, y.header.readout.apply(sums))


JOINED = """
module joined;
    reg [7:0] pixels [0:293];
    reg clk = 1'b0, rst = 1'b1;
    integer sent = 0, file;
    wire pixel_ready, y_valid, y_ready, y_last, byte_valid, byte_last;
    wire signed [6:0] y;
    wire [7:0] byte_out;
    encoder camera (.clk(clk), .rst(rst), .pixel_valid(sent < 294), .pixel_ready(pixel_ready),
        .pixel(pixels[sent]), .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last));
    coder bits (.clk(clk), .rst(rst), .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last),
        .byte_valid(byte_valid), .byte_ready(1'b1), .byte_out(byte_out), .byte_last(byte_last));
    always #5 clk = ~clk;
    initial begin
        $readmemh("pixels.mem", pixels);
        file = $fopen("bytes.txt", "w");
        repeat (3) @(posedge clk);
        rst <= 1'b0;
    end
    always @(posedge clk) if (!rst) begin
        if (sent < 294 && pixel_ready) sent <= sent + 1;
        if (byte_valid) $fdisplay(file, "%h", byte_out);
        if (byte_valid && byte_last) $finish;
    end
endmodule
"""


def test_the_coder_is_small_and_multiplies_nothing(tmp_path):
    export("verilog", random_camera(200, 8, 8), tmp_path / "v", bits=7, coder="rice")
    reading = "read_verilog coder.v tersense_rice.v ../tersense_rom.v"
    command = f"{reading}; synth_ecp5 -top coder; write_json cells.json"
    run_tool(tmp_path / "v/coder", "yosys", "-q", "-p", command)
    module = json.loads((tmp_path / "v/coder/cells.json").read_text())["modules"]["coder"]
    cells = Counter(cell["type"] for cell in module["cells"].values())
    assert 100 < cells["LUT4"] < 500
    assert 0 < cells["DP16KD"] < 5
    assert not any("MULT" in kind or "ALU" in kind for kind in cells)


# What is told.


@pytest.mark.parametrize(("kind", "options"), [("c", {"adaptive": True}), ("verilog", {})])
def test_the_readme_tells_how_to_code(tmp_path, kind, options):
    imager = deciding_camera()
    manifest, facts = export(kind, imager, tmp_path / "out", coder="rice", **options)
    text = check_readme(tmp_path / "out", manifest)
    commands = [line for line in indented(text) if line.startswith("cd coder")]
    assert len(commands) == (4 if kind == "c" else 2)
    for line in commands:
        if "yosys" not in line and "cortex" not in line:
            run_tool(tmp_path / "out", "sh", "-c", line.split("#")[0])
    words = len(term_memory(coder_of(manifest)))
    assert (f"{2 * words:,} bytes" if kind == "c" else f"{words:,} words of 10 bits") in text
    assert "coder" in facts


def test_from_a_photograph_to_bits_and_back(tmp_path, capsys):
    """What README.md tells, with commands; the image is that of the plain file."""
    folder, image = tmp_path / "c", data.camera()[100:164, 200:296]
    options = ["--bits", "9", "--step", "96", "--coder", "rice"]
    export_command = ["export", "c", "-m", "flex", "--rate", "0.04", "-o", str(folder)]
    assert main([*export_command, *options]) == 0
    write_image(folder / "image.pgm", image)
    run_tool(folder, "make", "encoder")
    run_tool(folder / "coder", "make", "coder")
    (folder / "y.csv").write_text(run_tool(folder, str(folder / "encoder"), "image.pgm"))
    run_tool(folder, str(folder / "coder/coder"), "image.pgm", "y.rice")
    for name in ("y.csv", "y.rice"):
        arguments = ["--manifest", str(folder), "--size", "96x64", "-o", f"{folder / name}.png"]
        assert main(["reconstruct", str(folder / name), *arguments]) == 0, capsys.readouterr().err
    assert (folder / "y.csv.png").read_bytes() == (folder / "y.rice.png").read_bytes()
    values = tersense.read_measured(folder / "y.rice", folder, (64, 96)).values
    assert (folder / "y.rice").stat().st_size < values.size * 9 / 8 * 0.7


def test_a_coder_that_there_is_not_is_refused(tmp_path, refused):
    with refused("coder must be rice", "'zip'"):
        export("c", random_camera(5, 8, 8), tmp_path / "c", coder="zip")
    assert list(tmp_path.iterdir()) == []
