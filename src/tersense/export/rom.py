"""Files that give a memory its contents, in the formats that tools for FPGAs read."""

from collections.abc import Iterable
from pathlib import Path


def write_mem(path: Path, words: Iterable[int], bits: int) -> None:
    """Write a file for `$readmemh`: one word of so many bits a line; negative ones wrap around."""
    path.write_text("\n".join(_hexadecimal(words, bits)) + "\n", encoding="ascii")


def write_rom(folder: Path, name: str, words: list[int], bits: int) -> None:
    """Write the contents of a ROM as `.mem`, as `.coe` (Xilinx) and as `.mif` (Intel)."""
    write_mem(folder / f"{name}.mem", words, bits)
    texts = _hexadecimal(words, bits)
    head = "memory_initialization_radix=16;\nmemory_initialization_vector=\n"
    (folder / f"{name}.coe").write_text(head + ",\n".join(texts) + ";\n", encoding="ascii")
    head = f"DEPTH = {len(words)};\nWIDTH = {bits};\nADDRESS_RADIX = UNS;\nDATA_RADIX = HEX;\n"
    lines = "".join(f"{place} : {text};\n" for place, text in enumerate(texts))
    (folder / f"{name}.mif").write_text(f"{head}CONTENT BEGIN\n{lines}END;\n", encoding="ascii")


def _hexadecimal(words: Iterable[int], bits: int) -> list[str]:
    digits, mask = -(-bits // 4), (1 << bits) - 1
    return [f"{int(word) & mask:0{digits}x}" for word in words]
