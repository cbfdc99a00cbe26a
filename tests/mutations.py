"""Damage files as accidents and attackers do: bytes, numbers, words, and the structure itself.

A mutation of the structure is sealed again (lengths, checksums, CRCs), so that it reaches the
checks behind the outer ones.
"""

import hashlib
import json
import re
import struct
import zlib
from random import Random
from typing import Any

HUGE = (2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64, 10**30, -1, -(2**31), -(2**63), 0, 1)
NUMBERS = (b"0", b"-1", b"1e999", b"nan", b"inf", b"-0", b"1.5", b"99999999999", b"9" * 400, b"0x1")
WORDS = ("", "..", "/etc/passwd", "../../x", "os.system", "__reduce__", "a\0b", "\n", "x" * 3000,
         "é\udcff".encode("utf-8", "replace").decode())  # fmt: skip
VALUES: tuple[Any, ...] = (*HUGE, *WORDS, None, True, [], {}, [[]], 0.5, 1e308, float("nan"),
                           float("inf"), [1] * 50, {"a": {"b": []}})  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
_LINE = re.compile(rb"[^\n]*\n")


def mutate(random: Random, seeds: list[bytes], suffix: str) -> bytes:
    """Return a damaged version of one of the seeds of a format."""
    content = random.choice(seeds)
    structure = _STRUCTURES.get(suffix)
    if structure and random.random() < 0.5:
        content = structure(random, content)
        if random.random() < 0.7:
            return content
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice(_DAMAGES)(random, content, random.choice(seeds))
    return content


def _place(random: Random, content: bytes) -> int:
    """Choose a place, often near the beginning, where headers are."""
    limit = len(content) if random.random() < 0.5 else min(len(content), 200)
    return random.randrange(limit + 1)


def _cut(random: Random, content: bytes, other: bytes) -> bytes:
    return content[: _place(random, content)]


def _extend(random: Random, content: bytes, other: bytes) -> bytes:
    return content + random.randbytes(random.choice((1, 8, 100, 5000)))


def _flip(random: Random, content: bytes, other: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        if damaged:
            damaged[min(_place(random, content), len(damaged) - 1)] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _fill(random: Random, content: bytes, other: bytes) -> bytes:
    at, length = _place(random, content), random.choice((1, 2, 4, 8, 32, 256))
    run = random.choice((b"\0" * length, b"\xff" * length, random.randbytes(length)))
    return content[:at] + run + content[at + length :]


def _remove(random: Random, content: bytes, other: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + content[at + random.choice((1, 4, 16, 300)) :]


def _repeat(random: Random, content: bytes, other: bytes) -> bytes:
    at, length = _place(random, content), random.choice((1, 16, 300))
    return content[:at] + content[at : at + length] * random.choice((2, 3, 100)) + content[at:]


def _splice(random: Random, content: bytes, other: bytes) -> bytes:
    return content[: _place(random, content)] + other[_place(random, other) :]


def _make_huge(random: Random, content: bytes, other: bytes) -> bytes:
    """Put a huge or odd number where a header may keep one."""
    at, form = _place(random, content), random.choice(("<I", ">I", "<Q", ">Q", "<H", ">H"))
    size = struct.calcsize(form)
    value = random.choice(HUGE) % 2 ** (8 * size)
    return content[:at] + struct.pack(form, value) + content[at + size :]


def _renumber(random: Random, content: bytes, other: bytes) -> bytes:
    """Replace a number in a text by an odd one."""
    found = list(_NUMBER.finditer(content[:20_000]))
    if not found:
        return content
    chosen = random.choice(found)
    return content[: chosen.start()] + random.choice(NUMBERS) + content[chosen.end() :]


def _swap_lines(random: Random, content: bytes, other: bytes) -> bytes:
    lines = _LINE.findall(content)
    if len(lines) > 1:
        a, b = random.randrange(len(lines)), random.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return b"".join(lines)
    return content


_DAMAGES = (_cut, _extend, _flip, _fill, _remove, _repeat, _splice, _make_huge, _renumber,
            _swap_lines)  # fmt: skip


def mutate_tree(random: Random, tree: Any) -> Any:
    """Return a JSON value with some entries replaced, swapped, left out, added or nested deeper."""
    if isinstance(tree, dict) and tree and random.random() < 0.9:
        key = random.choice(sorted(tree))
        kind = random.randrange(8)
        if kind == 0:
            return {k: v for k, v in tree.items() if k != key}
        if kind == 1:
            other = random.choice(sorted(tree))
            return {**tree, key: tree[other], other: tree[key]}
        if kind == 2:
            return {**tree, random.choice(WORDS): tree[key]}
        return {**tree, key: mutate_tree(random, tree[key])}
    if isinstance(tree, list) and tree and random.random() < 0.7:
        at = random.randrange(len(tree))
        if random.random() < 0.3:
            return tree * random.choice((0, 2, 50))
        return [*tree[:at], mutate_tree(random, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, str) and tree.startswith("{"):  # JSON inside of JSON
        return _dump(mutate_tree(random, json.loads(tree))).decode()
    if random.random() < 0.05:
        return _nested(random.choice((10, 2000)))
    return random.choice(VALUES)


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _dump(tree: Any) -> bytes:
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"[" * 5000 + b"]" * 5000


def _mutate_json(random: Random, content: bytes) -> bytes:
    return _dump(mutate_tree(random, json.loads(content)))


def _mutate_lines(random: Random, content: bytes) -> bytes:
    lines = content.splitlines()
    at = random.randrange(len(lines))
    lines[at] = _dump(mutate_tree(random, json.loads(lines[at])))
    return b"\n".join(lines) + b"\n"


def _mutate_safetensors(random: Random, content: bytes) -> bytes:
    """Edit the header of a safetensors file and give it its length again."""
    length = int.from_bytes(content[:8], "little")
    header = _dump(mutate_tree(random, json.loads(content[8 : 8 + length])))
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def _mutate_measurements(random: Random, content: bytes) -> bytes:
    """Edit a measurement file and seal it with a checksum that is right."""
    content = _mutate_safetensors(random, content)
    found = re.search(rb"sha256:([0-9a-f]{64})", content)
    if not found:
        return content
    at = found.start(1)
    blank = content[:at] + b"0" * 64 + content[at + 64 :]
    return content[:at] + hashlib.sha256(blank).hexdigest().encode() + content[at + 64 :]


def _mutate_png(random: Random, content: bytes) -> bytes:
    """Edit the chunks of a PNG file and give them their checksums again."""
    chunks, at = [], 8
    while at + 8 <= len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    if content[:4] != b"\x89PNG" or not chunks:
        return content
    number = random.randrange(len(chunks))
    name, data = chunks[number]
    kind = random.randrange(4)
    if kind == 0:
        chunks.insert(random.randrange(len(chunks) + 1), (name, data))
    elif kind == 1:
        del chunks[number]
    elif kind == 2:
        bomb = zlib.compress(b"\0" * random.choice((1000, 10**6, 10**7)))
        text = random.choice((b"zTXt", b"iCCP", b"IDAT", b"fdAT", b"eXIf"))
        chunks.insert(1, (text, b"a\0\0" + bomb if text != b"IDAT" else bomb))
    else:
        damage = random.choice((_flip, _fill, _make_huge, _cut, _extend))
        chunks[number] = name, damage(random, data, b"")
    parts = [content[:8]]
    for name, data in chunks:
        parts += [len(data).to_bytes(4, "big"), name, data, zlib.crc32(name + data).to_bytes(4)]
    return b"".join(parts)


_STRUCTURES = {
    ".json": _mutate_json,
    ".jsonl": _mutate_lines,
    ".safetensors": _mutate_safetensors,
    ".tsm": _mutate_measurements,
    ".png": _mutate_png,
}
