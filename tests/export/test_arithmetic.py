"""Widths and rounding, in Python integers, and the quantizers in Verilog and C."""

import itertools
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from cameras import random_camera
from tersense.export.arithmetic import Quantizer, RowQuantizer, deepen, limits, make_quantizer
from tersense.export.base import export
from tersense.export.c import quantizer_header, quantizer_table
from tersense.export.microcode import write_mem
from tersense.export.test_vectors import make_vectors
from tersense.export.verilog import RTL, quantizer_instance, step_words
from tools import run_tool

FIRMWARE = RTL.parent / "firmware"

# bits, step, lowest, highest
SMALL = [
    *itertools.product((2, 4, 8), (1, 2, 3, 7, 8, 100), (-1000,), (900,)),
    *((12, step, -1023, 1024) for step in (1, 5, 16, 1024)),
    (8, 3, 0, 700),
    (8, 3, -700, 0),
    (5, 1, 0, 0),
    (32, 1, -50, 50),
]
WIDE = [
    (10, 401, -204_750, 196_560),
    (16, 65_521, -(2**31) + 9, 2**31 - 5),
    (31, 3, -(2**31) + 9, 2**31 - 5),
    (32, 1, -(2**31) + 9, 2**31 - 5),
    (2, 2**31 - 5, -(2**31) + 9, 2**31 - 5),
    (8, 2**23, -(2**31) + 9, 2**31 - 5),
]


def round_by_definition(y, bits, step):
    """Return clip(floor(y/step + 1/2), ±(2^(B−1) − 1)) in rational numbers."""
    largest = 2 ** (bits - 1) - 1
    return max(-largest, min(largest, floor(Fraction(y, step) + Fraction(1, 2))))


def values_of(quantizer):
    """Return all measurements that can come, or of many those where codes change."""
    low, high, step = quantizer.lowest, quantizer.highest, quantizer.step
    if high - low < 10_000:
        return list(range(low, high + 1))
    random = np.random.default_rng(0)
    codes = (0, 1, -1, quantizer.largest_code, -quantizer.largest_code, low // step, high // step)
    drawn = random.integers(low // step, high // step + 1, 200).tolist()
    edges = [c * step + step // 2 + d for c in (*codes, *drawn) for d in (-step, -1, 0, 1)]
    return sorted({y for y in (*edges, low, low + 1, high - 1, high) if low <= y <= high})


@pytest.mark.parametrize("numbers", [*SMALL, *WIDE], ids=str)
def test_a_reciprocal_and_a_shift_give_the_code_of_every_measurement(numbers):
    quantizer = Quantizer(*numbers)
    factor, shift = quantizer.reciprocal
    values = values_of(quantizer)
    expected = [round_by_definition(y, quantizer.bits, quantizer.step) for y in values]
    assert quantizer.codes(np.array(values, np.int32)).tolist() == expected
    for y, code in zip(values, expected, strict=True):
        dividend = min(max(y, quantizer.low), quantizer.high) + quantizer.bias
        assert 0 <= dividend < 2**quantizer.dividend_bits
        assert (dividend * factor >> shift) - quantizer.zero == code
    assert (factor == 1) == (quantizer.step & (quantizer.step - 1) == 0)


def test_half_is_rounded_up():
    quantizer = Quantizer(4, 4, -100, 100)
    y = np.array([-100, -7, -6, -3, -2, -1, 1, 2, 5, 6, 27, 100], np.int32)
    assert quantizer.codes(y).tolist() == [-7, -2, -1, -1, 0, 0, 0, 1, 1, 2, 7, 7]


BENCH = """
module bench;
    reg clk = 0, rst = 1, sum_valid = 0, y_ready = 0;
    wire sum_ready, y_valid, y_last;
    reg [{acc_top}:0] sum, sums [0:{count}-1];
    wire sum_last = sum[0];
    wire signed [{code_top}:0] y;
    integer sent = 0, received = 0, seed = 1;
    always #5 clk = ~clk;
    initial begin $readmemh("sums.mem", sums); repeat (3) @(posedge clk); rst <= 0; end
    always @(posedge clk) if (!rst) begin
        y_ready <= $random(seed);
        if (!sum_valid || sum_ready) begin
            sum_valid <= sent < {count};
            sum       <= sums[sent];
            sent       = sent + 1;
        end
        if (y_valid && y_ready) begin
            $display("%0d %0d", y, y_last);
            received = received + 1;
            if (received == {count}) $finish;
        end
    end
{instance}
endmodule
"""


@pytest.mark.parametrize("numbers", [*SMALL[::3], *WIDE], ids=str)
def test_the_quantizer_in_verilog_gives_the_same_codes(tmp_path, numbers):
    quantizer = Quantizer(*numbers)
    bits = max(1, quantizer.highest.bit_length(), (-quantizer.lowest).bit_length()) + 1
    values = values_of(quantizer)
    words = (f"{y & (2**bits - 1):x}" for y in values)
    (tmp_path / "sums.mem").write_text("\n".join(words) + "\n")
    text = BENCH.format(acc_top=bits - 1, code_top=quantizer.bits - 1, count=len(values),
                        instance=quantizer_instance(quantizer, bits))  # fmt: skip
    (tmp_path / "bench.v").write_text(text)
    source = str(RTL / "tersense_quantizer.v")
    run_tool(tmp_path, "iverilog", "-g2005", "-Wall", "-o", "sim", "bench.v", source)
    printed = np.array(run_tool(tmp_path, "vvp", "sim").split(), int).reshape(-1, 2)
    codes = [round_by_definition(y, quantizer.bits, quantizer.step) for y in values]
    np.testing.assert_array_equal(printed[:, 0], codes)
    np.testing.assert_array_equal(printed[:, 1], np.array(values) & 1)


TABLES = """
#include <stdint.h>
#define TERSENSE_WINDOW 1
#define TERSENSE_ROWS {rows}
typedef uint8_t tersense_sample, tersense_count, tersense_row;
typedef int32_t tersense_value;
static const tersense_count tersense_counts[2] = {{0, 0}};
static const tersense_row tersense_rows[1] = {{0}};
{header}"""
PROGRAM = """
#include <stdio.h>
#include "sense.c"
int main(void)
{
    long y;
    size_t row = 0;
    while (scanf("%ld", &y) == 1) {
        tersense_code code = tersense_quantize(row++ % TERSENSE_ROWS, (tersense_value)y);
        printf("%ld\\n", (long)code);
    }
    return 0;
}
"""


def compile_quantizer(folder):
    """Compile try.c beside the firmware, with every warning and check."""
    for name in ("sense.c", "sense.h"):
        (folder / name).write_text((FIRMWARE / name).read_text())
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    checks = "-fsanitize=undefined", "-fno-sanitize-recover=all"
    run_tool(folder, "gcc", *flags, *checks, "-o", "try", "try.c")


@pytest.mark.parametrize("numbers", [*SMALL[::3], *WIDE], ids=str)
def test_the_quantizer_in_c_gives_the_same_codes(tmp_path, numbers):
    quantizer = Quantizer(*numbers)
    (tmp_path / "tables.h").write_text(TABLES.format(header=quantizer_header(quantizer), rows=1))
    (tmp_path / "try.c").write_text(PROGRAM)
    compile_quantizer(tmp_path)
    values = values_of(quantizer)
    printed = run_tool(tmp_path, str(tmp_path / "try"), stdin="\n".join(map(str, values)).encode())
    codes = [round_by_definition(y, quantizer.bits, quantizer.step) for y in values]
    assert [int(word) for word in printed.split()] == codes


# bits, steps, lowest, highest, offsets
BY_ROW = [
    (2, (1, 2, 3), -40, 30, ()),
    (2, (1, 2, 3), -40, 30, (-40, 15, 0)),
    (4, (1, 7, 100, 64, 13), -1000, 900, (-3, 128, 9, -15, 0)),
    (8, (3,), -700, 0, (-117,)),
    (8, (5, 5, 1), 0, 700, ()),
    (10, (401, 8, 129), -204_750, 196_560, (489, -20_000, 3)),
    (16, (65_521, 1, 30_000), -(2**31) + 9, 2**31 - 5, (0, 2**31 - 5, -70_000)),
    (32, (1, 2**20 + 7), -(2**31) + 9, 2**31 - 5, ()),
    (5, (2**31 - 5, 2**26, 99), -(2**31) + 9, 2**31 - 5, (-1, 31, -1)),
]


def row_quantizer(bits, steps, lowest, highest, offsets):
    return RowQuantizer(bits, steps, highest, offsets)


def measurements_by_row(bits, steps, lowest, highest, offsets):
    """Return measurements in the order of the rows, window by window, and their codes."""
    middles = [k * step for k, step in zip(offsets or (0,) * len(steps), steps, strict=True)]
    each = []
    for step, middle in zip(steps, middles, strict=True):
        around = values_of(Quantizer(bits, step, lowest - middle, highest - middle))
        each.append([y + middle for y in around])
    count = max(map(len, each))
    table = [[values[k * 7919 % len(values)] for values in each] for k in range(count)]
    for column, values in enumerate(each):  # every one of them, whatever the order
        for place, value in enumerate(values):
            table[place][column] = value
    codes = [[round_by_definition(y - middle, bits, step)
              for y, step, middle in zip(line, steps, middles, strict=True)]
             for line in table]  # fmt: skip
    return np.array(table), np.array(codes)


@pytest.mark.parametrize("numbers", BY_ROW, ids=str)
def test_rows_with_steps_of_their_own_share_the_shift_of_the_reciprocal(numbers):
    steps = numbers[1]
    quantizer, (y, codes) = row_quantizer(*numbers), measurements_by_row(*numbers)
    np.testing.assert_array_equal(quantizer.codes(y.astype(np.int32)), codes)
    factors, shift = quantizer.reciprocals
    of_rows = zip(steps, factors, quantizer.middles, strict=True)
    for column, (step, factor, middle) in enumerate(of_rows):
        reach = quantizer.largest_code * step
        for value, code in zip(y[:, column].tolist(), codes[:, column].tolist(), strict=True):
            dividend = min(max(value - middle, -reach), reach) + reach + step // 2
            assert 0 <= dividend < 2**quantizer.dividend_bits
            assert (dividend * factor >> shift) - quantizer.largest_code == code


@pytest.mark.parametrize("numbers", BY_ROW, ids=str)
def test_the_quantizer_by_row_in_verilog_gives_the_same_codes(tmp_path, numbers):
    bits, steps, lowest, highest, _ = numbers
    quantizer, (y, codes) = row_quantizer(*numbers), measurements_by_row(*numbers)
    acc_bits = max(1, highest.bit_length(), (-lowest).bit_length()) + 1
    last = np.arange(y.size) % len(steps) == len(steps) - 1
    write_mem(tmp_path / "sums.mem", [int(v) & (2**acc_bits - 1) | int(end) << acc_bits
                                      for v, end in zip(y.flat, last, strict=True)],
              acc_bits + 1)  # fmt: skip
    write_mem(tmp_path / "steps.mem", *step_words(quantizer))
    text = BENCH.format(acc_top=acc_bits, code_top=bits - 1, count=y.size,
                        instance=quantizer_instance(quantizer, acc_bits))  # fmt: skip
    text = text.replace("sum_last = sum[0]", f"sum_last = sum[{acc_bits}]")
    text = text.replace(".y(sum)", f".y(sum[{acc_bits - 1}:0])")
    (tmp_path / "bench.v").write_text(text)
    sources = [str(RTL / f"tersense_{name}.v") for name in ("row_quantizer", "rom")]
    run_tool(tmp_path, "iverilog", "-g2005", "-Wall", "-o", "sim", "bench.v", *sources)
    printed = np.array(run_tool(tmp_path, "vvp", "sim").split(), int).reshape(-1, 2)
    np.testing.assert_array_equal(printed[:, 0], codes.ravel())
    np.testing.assert_array_equal(printed[:, 1], last)


@pytest.mark.parametrize("numbers", BY_ROW, ids=str)
def test_the_quantizer_by_row_in_c_gives_the_same_codes(tmp_path, numbers):
    quantizer, (y, codes) = row_quantizer(*numbers), measurements_by_row(*numbers)
    header = quantizer_header(quantizer)
    (tmp_path / "tables.h").write_text(TABLES.format(header=header, rows=len(numbers[1])))
    (tmp_path / "try.c").write_text(PROGRAM + quantizer_table(quantizer))
    compile_quantizer(tmp_path)
    printed = run_tool(tmp_path, str(tmp_path / "try"), stdin="\n".join(map(str, y.flat)).encode())
    assert [int(word) for word in printed.split()] == codes.ravel().tolist()


def test_accumulators_grow_with_the_depth():
    patterns = random_camera(7, 9, 4).patterns
    for depth in range(8, 17):
        vectors = make_vectors(patterns, depth)
        lowest, highest = limits(patterns, depth)
        assert (vectors.measurements.min(), vectors.measurements.max()) == (lowest, highest)
        assert vectors.pixels.max() == 2**depth - 1
        assert vectors.pixels.dtype == (np.uint8 if depth == 8 else np.uint16)
        bits = patterns.accumulator_bits_at(depth)
        assert -(2 ** (bits - 1)) <= lowest and highest < 2 ** (bits - 1)  # noqa: PT018
        assert lowest < -(2 ** (bits - 2)) or highest >= 2 ** (bits - 2)


def test_deeper_pixels_keep_black_white_and_order():
    every = np.arange(256, dtype=np.uint8)
    for depth in range(8, 17):
        deep = deepen(every, depth).astype(int)
        assert (deep[0], deep[-1]) == (0, 2**depth - 1)
        assert (np.diff(deep) > 0).all()
        np.testing.assert_array_equal(deep >> (depth - 8), every)


def test_without_a_step_nothing_is_clipped():
    patterns = random_camera(7, 9, 4).patterns
    for depth, bits in itertools.product((8, 12), (2, 5, 8, 32)):
        quantizer = make_quantizer(patterns, depth, bits, None)
        assert (quantizer.low, quantizer.high) == limits(patterns, depth)
        if quantizer.step > 1:
            smaller = make_quantizer(patterns, depth, bits, quantizer.step - 1)
            assert (smaller.low, smaller.high) != limits(patterns, depth)


@pytest.mark.parametrize("kind", ["verilog", "c"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": 7}, ["depth", "8 to 16", "7"]),
        ({"depth": 17}, ["17"]),
        ({"bits": 1}, ["bits", "2 to 32", "1"]),
        ({"bits": 33}, ["33"]),
        ({"step": 5}, ["step of 5", "bits"]),
        ({"bits": 8, "step": 0}, ["step", "0"]),
        ({"bits": 8, "step": 10**6}, ["step", "1000000"]),
        ({"steps": [3, 3]}, ["steps", "bits"]),
        ({"bits": 8, "step": 3, "steps": [3, 3]}, ["one step (3)", "not both"]),
        ({"bits": 8, "steps": [3, 3]}, ["one for each row", "got 2"]),
        ({"bits": 8, "steps": [3] * 16, "offsets": [3, 3]}, ["offsets", "each row", "got 2"]),
        ({"bits": 8, "steps": [3] * 16, "offsets": [10**6] * 16}, ["3,000,000"]),
    ],
    ids=str,
)
def test_impossible_widths_are_refused(tmp_path, small_imager, refused, kind, options, said):
    with refused(*said):
        export(kind, small_imager, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []
