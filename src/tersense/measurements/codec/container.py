"""Coded measurement files: the same integers in fewer bytes (formats 3 and 4 of `.tsm`).

    89 "TSM" 03 | length of the header, 2 bytes | header | codes | CRC-32, 4 bytes

Numbers are little-endian. The header is JSON, deflated with a dictionary that has the words of all
headers, so that it takes some fifty bytes. Of the hash of Φ it has the first sixteen digits: who
decodes needs Φ itself, to predict what it measures. Codes follow as one stream of the range coder:
the counts per window, where there are any, then the windows, those with the most rows first.
Format 4 has offsets, which programs that know format 3 would leave out.
"""

import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.measurements.codec.stream import decode_codes, decode_counts, encode_codes
from tersense.measurements.counts import Counts
from tersense.measurements.tsm import CODED_MAGIC as MAGIC
from tersense.measurements.tsm import OFFSET, Header, read_header
from tersense.sensing.patterns import Patterns

CODED, NEWEST = 3, OFFSET  # the format, and that with offsets
_START = len(MAGIC) + 3  # with the version and the length of the header
_HASH_DIGITS = 16
_LONGEST_HEADER = 2**16
# The end of a dictionary is the cheapest to refer to. Its words can be added to, never changed.
_WORDS = (
    b'{"depth":12,"percentile":100.0,"steps":[1,2],"photons":1.0,"noise":1.0,"seed":0,"mode":"RGB"'
    b',"height":768,"width":512,"mode":"L","window":64,"stride":32,"patterns":512,"counts":1,'
    b'"phi":"0123456789abcdef","bits":8,"step":64.0,"height":256,"width":256}'
)

_REAL = ("step", "noise", "photons", "percentile")


def encode(
    values: NDArray[Any], header: Header, counts: Counts | None, patterns: Patterns
) -> bytes:
    """Return the content of a coded file.

    Args:
        values: As `Measurements` has them.
        header: Of them.
        counts: Of them.
        patterns: Φ, with which they were taken.
    """
    words = _shorten(header) | ({} if counts is None else {"counts": 1 if counts.ndim == 2 else 3})
    text = json.dumps(words, separators=(",", ":"), ensure_ascii=True).encode()
    deflater = zlib.compressobj(9, wbits=-15, zdict=_WORDS)
    deflated = deflater.compress(text) + deflater.flush()
    if len(text) > _LONGEST_HEADER or len(deflated) >= 1 << 16:
        raise TersenseError(
            f"a coded file holds the steps and offsets of some thousand rows, got {header.rows}; "
            "write a plain one"
        )
    version = NEWEST if header.readout.offsets else CODED
    content = MAGIC + bytes([version]) + len(deflated).to_bytes(2, "little") + deflated
    content += encode_codes(values, header, counts, patterns)
    return content + zlib.crc32(content).to_bytes(4, "little")


def decode(
    content: bytes, patterns: Patterns, max_pixels: int
) -> tuple[NDArray[Any], Header, Counts | None]:
    """Return values, header and counts of a coded file.

    Args:
        content: Of the file.
        patterns: Φ, with which it was taken.
        max_pixels: Larger images are refused.
    """
    header, maps, stream = _read(content, max_pixels)
    if not patterns.hash.startswith(header.phi):
        raise ValueError(
            f"it was taken with patterns {header.phi}…, not {patterns.hash[:16]}…; `tersense info` "
            "names the models that have them"
        )
    header = replace(header, phi=patterns.hash)
    header.require_taken_with(patterns, "the camera given")
    return decode_codes(stream, header, maps, patterns)


def peek(content: bytes, max_pixels: int) -> tuple[Header, Counts | None]:
    """Return header and counts of a coded file, which takes no patterns.

    Of the hash of Φ, the header has the first digits only.
    """
    header, maps, stream = _read(content, max_pixels)
    source = np.frombuffer(bytearray(stream), np.uint8)
    return header, decode_counts(np.zeros(4, np.uint64), source, header, maps)


def _read(content: bytes, max_pixels: int) -> tuple[Header, int, bytes]:
    """Return the header of a file, how many maps of counts it has, and its stream."""
    words, start_of_codes = _read_words(content)
    maps = words.pop("counts", 0)
    plain = 2 if maps or {"bits", "depth"} & words.keys() else 1
    header = read_header({**words, "version": plain}, max_pixels)
    own: dict[str, Any] = {k: tuple(words[k]) for k in ("steps", "offsets") if k in words}
    if own:
        header = replace(header, readout=replace(header.readout, **own))
    if maps not in (0, 1, 3) or (maps == 3 and header.mode == "L"):
        raise ValueError(f"counts must be 1 map, or 3 in color, got {maps!r}")
    if len(header.phi) < _HASH_DIGITS:
        raise ValueError(f"the hash of its patterns must have {_HASH_DIGITS} digits")
    return header, maps, content[start_of_codes:-4]


def _shorten(header: Header) -> dict[str, Any]:
    """Return the fields of a header that differ from their defaults, whole numbers as integers."""
    usual = {"bits": 0, "step": 1.0, "noise": 0.0, "seed": 0, "mode": "L"}
    kept = {key: value for key, value in header.to_dict().items() if value != usual.get(key)}
    kept.pop("version")
    whole: dict[str, Any] = {key: int(kept[key]) for key in _REAL if kept.get(key, 0.5) % 1 == 0}
    if "steps" in kept:
        whole["steps"] = [int(step) for step in kept["steps"]]
    return kept | whole | {"phi": header.phi[:_HASH_DIGITS]}


def _lengthen(words: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a header with their defaults, real numbers as floats."""
    real: dict[str, Any] = {key: float(words[key]) for key in _REAL if type(words.get(key)) is int}
    if isinstance(words.get("steps"), list):
        real["steps"] = [float(s) if type(s) is int else s for s in words["steps"]]
    return {"mode": "L", **words, **real}


def _read_words(content: bytes) -> tuple[dict[str, Any], int]:
    """Return what a header says and where the codes begin; refuse damaged files."""
    length = int.from_bytes(content[_START - 2 : _START], "little")
    if len(content) < _START + length + 4:
        raise ValueError("it is cut off")
    if content[len(MAGIC)] > NEWEST:
        raise ValueError(
            f"its format {content[len(MAGIC)]} is newer than {NEWEST}, the newest known here; "
            "update tersense"
        )
    if zlib.crc32(content[:-4]).to_bytes(4, "little") != content[-4:]:
        raise ValueError("the checksum does not match, the file is damaged")
    inflater = zlib.decompressobj(wbits=-15, zdict=_WORDS)
    try:
        text = inflater.decompress(content[_START : _START + length], _LONGEST_HEADER)
    except zlib.error as error:
        raise ValueError(f"its header cannot be inflated: {error}") from error
    words = json.loads(text)
    if not isinstance(words, dict):
        raise ValueError("its header is not a table")
    return _lengthen(words), _START + length
