"""What the built-in models were measured to reach, for their cards.

These are the figures of `docs/results.md`, where the commands stand; a test compares them.
"""

import torch

from tersense.errors import TersenseError
from tersense.models.imager import Imager
from tersense.models.zoo import load, share_patterns

_PAGE = "https://github.com/tersense/tersense/blob/main/docs/results.md"
_SETS = ("Set11", "BSD68", "Set14", "ILSVRCval40", "LabelMe50")
# PSNR in dB and SSIM on these sets, by model and rate.
QUALITY = {
    "block-r10": {0.1: "30.76 0.8990 28.17 0.7977 29.40 0.8294 29.39 0.8547 27.62 0.8299"},
    "block-r25": {0.25: "35.82 0.9552 32.02 0.9049 34.01 0.9206 34.03 0.9364 31.77 0.9237"},
    "lapped-r25": {0.25: "36.27 0.9561 32.37 0.9065 34.39 0.9211 34.47 0.9370 32.18 0.9247"},
    "flex": {
        0.01: "21.48 0.6109 22.50 0.5476 21.93 0.5650 22.17 0.5983 22.00 0.5808",
        0.04: "26.35 0.8039 25.43 0.6794 25.96 0.7143 25.92 0.7466 24.73 0.7141",
        0.1: "30.39 0.8918 28.00 0.7907 29.15 0.8227 29.19 0.8481 27.44 0.8234",
        0.25: "35.34 0.9516 31.74 0.8996 33.55 0.9158 33.63 0.9322 31.48 0.9191",
        0.5: "40.31 0.9784 36.34 0.9611 38.34 0.9624 38.65 0.9738 36.53 0.9702",
    },
    "large": {
        0.01: "21.93 0.6163 22.86 0.5527 22.41 0.5727 22.62 0.6040 22.32 0.5862",
        0.04: "26.85 0.8132 25.71 0.6870 26.39 0.7236 26.32 0.7549 25.08 0.7264",
        0.1: "30.88 0.8986 28.31 0.7992 29.63 0.8314 29.62 0.8551 27.83 0.8329",
        0.25: "35.82 0.9549 32.04 0.9039 34.01 0.9199 34.04 0.9354 31.82 0.9233",
        0.5: "40.84 0.9802 36.87 0.9653 38.93 0.9655 39.20 0.9765 37.09 0.9735",
    },
}
# PSNR in dB of universal networks at 25 %: σ of the noise in pixel values, bits of a converter.
READOUTS = ("exact", "σ = 60", "σ = 150", "σ = 500", "8 bits", "6 bits", "5 bits", "4 bits")
UNIVERSAL = {
    "flex": {
        "Set11": "35.34 32.29 29.60 25.38 35.20 34.18 32.80 30.69",
        "ILSVRCval40": "33.63 31.02 28.64 24.96 33.51 32.68 31.51 29.63",
    },
    "large": {
        "Set11": "35.82 34.30 32.21 28.19 35.67 34.62 33.21 31.03",
        "ILSVRCval40": "34.05 32.80 30.92 27.36 33.92 33.05 31.84 29.91",
    },
}
# PSNR in dB on Set11 by rate, with the same number of measurements in five adaptive rounds.
ADAPTIVE = {
    "flex": {0.04: "27.76", 0.1: "32.30", 0.25: "37.32"},
    "large": {0.04: "28.24", 0.1: "32.72", 0.25: "37.79"},
}


def measured_figures(imager: Imager) -> str:
    """Return the figures of a built-in model in Markdown; nothing for other models."""
    name = _built_in_name(imager)
    if name not in QUALITY:
        return ""
    rows = {
        f"{rate:g}": [" / ".join(pair) for pair in zip(*[iter(text.split())] * 2, strict=True)]
        for rate, text in QUALITY[name].items()
    }
    text = f"""PSNR (dB) / SSIM on test sets in gray, every image sensed once ([how]({_PAGE})):

{_table(["rate", *_SETS], rows)}

Windows that reach beyond an image count in full: at a rate of 0.25, BSD68 takes 0.292 measurements
per pixel and Set14 0.257.
"""
    return text + (_universal(name) if name in UNIVERSAL else "")


def _universal(name: str) -> str:
    """Return what a network that is told counts and errors reaches with them."""
    readouts = {images: text.split() for images, text in UNIVERSAL[name].items()}
    text = f"""
One network serves every rate, any count of measurements in any window, and readouts with errors,
which it is told. PSNR in dB at a rate of 0.25, with Gaussian noise of deviation σ (pixel values) on
every measurement, or with a converter of few bits, each pattern ranged for the image:

{_table(["", *READOUTS], readouts)}
"""
    if name not in ADAPTIVE:
        return text
    adaptive = "; ".join(
        f"{reached} at {rate:g} (even: {QUALITY[name][rate].split()[0]})"
        for rate, reached in ADAPTIVE[name].items()
    )
    return f"""{text}
With the same number of measurements, more of them where they pay, in five rounds
(`tersense sense --adaptive closed --rounds 5`), PSNR in dB on Set11: {adaptive}.
"""


def _table(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _built_in_name(imager: Imager) -> str:
    """Return which model of the package this is, by its patterns and weights; or nothing."""
    patterns, ours = imager.patterns, imager.reconstructor.state_dict()
    try:
        candidates = share_patterns(patterns.hash, patterns.stride, len(patterns))
    except TersenseError:
        return ""
    for known in map(load, candidates):
        theirs = known.reconstructor.state_dict()
        same = ours.keys() == theirs.keys() and len(patterns) == len(known.patterns)
        if same and all(torch.equal(ours[key].cpu(), theirs[key]) for key in ours):
            return known.name
    return ""
