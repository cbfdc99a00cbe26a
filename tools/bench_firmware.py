"""Measure the exported C encoder on an emulated Cortex-M4: flash, RAM, stack, instructions.

Dense encoders of the same Φ run beside it, plain C compiled with the same options. The emulator
(QEMU) counts instructions: with `-icount shift=7` its clock advances by 2⁷ ns with each one, and
SysTick ticks every 40 ns, which is fine enough to tell the count exactly. An instruction is not a
cycle: the emulator has no model of time. A loop of known length checks the counting in every run.

Example: python tools/bench_firmware.py -m paper-r25
Needs: gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import tersense
from tersense.export.base import export
from tersense.sensing.patterns import Patterns

FLAGS = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c99 -O2 -fstack-usage"
QEMU = "qemu-system-arm -M mps2-an386 -nographic -monitor none -semihosting -icount shift=7"
NANOSECONDS_PER_INSTRUCTION, NANOSECONDS_PER_TICK = 2**7, 40
KNOWN_LOOP = 200_000  # instructions

DENSE = {
    "dense, 8 bits": (
        "dense8",
        "int8_t",
        """
        for (row = 0; row < ROWS; row++) {
            int32_t sum = 0;
            for (place = 0; place < PLACES; place++) sum += *phi++ * pixels[place];
            y[row] = (tersense_value)sum;
        }""",
    ),
    "dense, 2 bits": (
        "dense2",
        "uint8_t",
        """
        for (row = 0; row < ROWS; row++) {
            int32_t sum = 0;
            for (place = 0; place < PLACES; place += 4) {
                unsigned four = *phi++, k;
                for (k = 0; k < 4; k++, four >>= 2)
                    if (four & 1) sum += four & 2 ? -pixels[place + k] : pixels[place + k];
            }
            y[row] = (tersense_value)sum;
        }""",
    ),
    "dense, float32": (
        "dense_float",
        "float",
        """
        float x[PLACES];
        for (place = 0; place < PLACES; place++) x[place] = (float)pixels[place];
        for (row = 0; row < ROWS; row++) {
            float sum = 0;
            for (place = 0; place < PLACES; place++) sum += *phi++ * x[place];
            y[row] = (tersense_value)sum;
        }""",
    ),
}

HARNESS = """
#include <stdio.h>
#include "lines.h"
#include "vectors.h"
#define SYSTICK ((volatile uint32_t *)0xE000E010)
%(declarations)s
static tersense_value y[TERSENSE_ROWS];

static void pixel_by_pixel(const uint8_t *pixels, tersense_value *y)
{
    tersense_window window;
    int place;
    tersense_begin(&window, y);
    for (place = 0; place < VECTOR_PIXELS; place++) tersense_pixel(&window, pixels[place]);
}
static void whole(const uint8_t *pixels, tersense_value *y)
{
    tersense_sense(pixels, TERSENSE_WINDOW, y);
}
#if TERSENSE_WINDOW == TERSENSE_STRIDE
static void line_by_line(const uint8_t *pixels, tersense_value *y)
{
    tersense_image image;
    int line;
    tersense_start(&image, TERSENSE_WINDOW, TERSENSE_WINDOW, y);
    for (line = 0; line < TERSENSE_WINDOW; line++, pixels += TERSENSE_WINDOW)
        tersense_push_line(&image, pixels);
}
#endif
static void known_loop(const uint8_t *pixels, tersense_value *y)
{
    int count = %(known)d / 2;
    (void)pixels, (void)y;
    __asm__ volatile("1: subs %%0, #1\\n bne 1b" : "+r"(count) : : "cc");
}
static void nothing(const uint8_t *pixels, tersense_value *y) { (void)pixels, (void)y; }

static void report(const char *name, void (*encode)(const uint8_t *, tersense_value *))
{
    uint32_t before, after;
    unsigned k, row, wrong = 0, ticks = 0;
    for (k = 0; k < vector_count; k++) {
        before = SYSTICK[2];
        encode(vectors[k].pixels, y);
        after = SYSTICK[2];
        ticks += (before - after) & 0xFFFFFF;
        for (row = 0; row < TERSENSE_ROWS; row++) wrong += y[row] != vectors[k].y[row];
    }
    printf("%%s|%%u|%%u|%%u\\n", name, ticks, vector_count, wrong);
}

int main(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* switch the FPU on */
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5; /* on, the processor's clock, no interrupt */
    report("nothing", nothing);
    report("known loop", known_loop);
    report("sparse ternary", whole);
    report("pixel by pixel", pixel_by_pixel);
#if TERSENSE_WINDOW == TERSENSE_STRIDE /* a window is an image of one window */
    report("line by line", line_by_line);
#endif
    %(reports)s
    return 0;
}
"""


def write_dense(patterns: Patterns, folder: Path) -> None:
    """Write the dense encoders, one file each, and the program that counts."""
    flat = patterns.phi.reshape(len(patterns), -1)
    codes = np.array([3, 0, 1], np.uint8)[flat + 1].reshape(len(patterns), -1, 4)
    packed = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2)
    tables = {"dense8": flat, "dense2": packed, "dense_float": flat}
    for name, kind, body in DENSE.values():
        table = ",".join(map(str, tables[name].flat))
        (folder / f"{name}.c").write_text(
            f'#include "sense.h"\n#define ROWS {len(patterns)}\n#define PLACES {flat.shape[1]}\n'
            f"static const {kind} table[] = {{{table}}};\n"
            f"void {name}(const uint8_t *pixels, tersense_value *y)\n"
            f"{{\n    const {kind} *phi = table;\n    int row, place;\n{body}\n}}\n"
        )
    declarations = [f"void {n}(const uint8_t *, tersense_value *);" for n, _, _ in DENSE.values()]
    reports = [f'report("{label}", {name});' for label, (name, _, _) in DENSE.items()]
    (folder / "count.c").write_text(
        HARNESS
        % {
            "declarations": "\n".join(declarations),
            "reports": "\n    ".join(reports),
            "known": KNOWN_LOOP,
        }
    )


def run(command: str, folder: Path) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def flash_bytes(folder: Path, *objects: str) -> int:
    """Return the bytes of code and constants; there must be no variables."""
    sizes = run(f"arm-none-eabi-size {' '.join(objects)}", folder).splitlines()[1:]
    columns = [[int(number) for number in line.split()[:3]] for line in sizes]
    assert all(data == bss == 0 for _, data, bss in columns)
    return sum(text for text, _, _ in columns)


def count_instructions(folder: Path) -> dict[str, tuple[float, int]]:
    """Return instructions a window and wrong measurements of each encoder."""
    result = {}
    for line in run(f"{QEMU} -kernel count.elf", folder).splitlines():
        name, ticks, windows, wrong = line.split("|")
        nanoseconds = int(ticks) * NANOSECONDS_PER_TICK / int(windows)
        result[name] = nanoseconds / NANOSECONDS_PER_INSTRUCTION, int(wrong)
    overhead = result.pop("nothing")[0]
    result = {name: (count - overhead, wrong) for name, (count, wrong) in result.items()}
    known = result.pop("known loop")[0]
    if abs(known - KNOWN_LOOP) > 10:
        raise SystemExit(f"a loop of {KNOWN_LOOP} instructions was counted as {known:.1f}")
    return result


def measure(model: str, folder: Path) -> str:
    """Export, compile, run; return a Markdown table."""
    imager = tersense.load(model)
    export("c", imager, folder)
    write_dense(imager.patterns, folder)
    names = ["sense", "lines", "tables", *(name for name, _, _ in DENSE.values())]
    for name in names:
        run(f"arm-none-eabi-gcc {FLAGS} -ffreestanding -c {name}.c -o {name}.o", folder)
    objects = " ".join(f"{name}.o" for name in names)
    run(
        f"arm-none-eabi-gcc {FLAGS} --specs=rdimon.specs -T cortex-m4.ld -o count.elf "
        f"count.c vectors.c cortex-m4.c {objects}",
        folder,
    )
    flash = {"sparse ternary": flash_bytes(folder, "sense.o", "tables.o")}
    flash["pixel by pixel"] = flash["sparse ternary"]
    flash["line by line"] = flash_bytes(folder, "sense.o", "lines.o", "tables.o")
    for label, (name, _, _) in DENSE.items():
        flash[label] = flash_bytes(folder, f"{name}.o")
    counts = count_instructions(folder)
    ours, pixels = counts["sparse ternary"][0], imager.patterns.window**2
    lines = [
        "| encoder | flash, bytes | instructions a window | a pixel | against ours | wrong |",
        "|---|---|---|---|---|---|",
    ]
    for label, (count, wrong) in counts.items():
        lines.append(
            f"| {label} | {flash[label]:,} | {count:,.0f} | {count / pixels:.1f} "
            f"| {count / ours:.1f}× | {wrong} |"
        )
    code = flash_bytes(folder, "sense.o")
    ram = len(imager.patterns) * imager.patterns.measurement_dtype.itemsize
    stacks = re.findall(r":(\w+)\t(\d+)", (folder / "sense.su").read_text())
    stack = ", ".join(f"{function} {size}" for function, size in stacks)
    tools = [run(f"{tool} --version", folder).splitlines()[0]
             for tool in ("arm-none-eabi-gcc", "qemu-system-arm")]  # fmt: skip
    return "\n".join([
        *lines, "",
        f"{imager.name}: {code} bytes of code, {flash['sparse ternary'] - code:,} of tables; "
        f"RAM: {ram} bytes of measurements, no variables; stack in bytes: {stack}.",
        f"{tools[0]} -O2; {tools[1]}.",
    ])  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="paper-r25")
    with tempfile.TemporaryDirectory() as temporary:
        print(measure(parser.parse_args().model, Path(temporary) / "c"))
