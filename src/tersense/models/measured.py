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
    "block-r25": {0.25: "35.82 0.9552 32.02 0.9049 34.01 0.9206 34.03 0.9364 31.77 0.9237"},
    "lapped-r25": {0.25: "36.27 0.9561 32.37 0.9065 34.39 0.9211 34.47 0.9370 32.18 0.9247"},
    "flex": {
        0.01: "21.52 0.6073 22.53 0.5458 22.04 0.5634 22.22 0.5956 22.03 0.5792",
        0.04: "26.53 0.8068 25.46 0.6803 26.04 0.7157 26.00 0.7473 24.80 0.7159",
        0.1: "30.60 0.8955 28.04 0.7922 29.29 0.8254 29.28 0.8493 27.54 0.8252",
        0.25: "35.51 0.9530 31.81 0.9005 33.72 0.9173 33.79 0.9333 31.54 0.9197",
        0.5: "40.53 0.9793 36.46 0.9617 38.58 0.9635 38.92 0.9746 36.57 0.9702",
    },
    "large": {
        0.01: "21.99 0.6136 22.89 0.5514 22.49 0.5712 22.67 0.6024 22.36 0.5854",
        0.04: "27.00 0.8146 25.76 0.6886 26.47 0.7247 26.42 0.7566 25.18 0.7287",
        0.1: "31.03 0.9007 28.38 0.8013 29.79 0.8340 29.75 0.8572 27.95 0.8349",
        0.25: "36.10 0.9567 32.15 0.9055 34.26 0.9216 34.28 0.9372 31.92 0.9244",
        0.5: "41.16 0.9813 37.09 0.9666 39.27 0.9669 39.63 0.9779 37.23 0.9742",
    },
    "fast": {
        0.01: "21.51 0.5932 22.67 0.5433 22.10 0.5570 22.32 0.5895 22.11 0.5746",
        0.04: "26.15 0.7914 25.45 0.6768 25.84 0.7078 25.86 0.7393 24.74 0.7075",
        0.1: "29.91 0.8826 27.95 0.7899 28.96 0.8188 28.95 0.8444 27.30 0.8190",
        0.25: "34.93 0.9489 31.63 0.8979 33.19 0.9125 33.27 0.9294 31.32 0.9164",
        0.5: "40.18 0.9784 36.48 0.9631 38.23 0.9630 38.56 0.9746 36.56 0.9705",
    },
}
# PSNR in dB of universal networks at 25 %: σ of the noise in pixel values, bits of a converter.
READOUTS = ("exact", "σ = 60", "σ = 150", "σ = 500", "8 bits", "6 bits", "5 bits", "4 bits")
UNIVERSAL = {
    "flex": {
        "Set11": "35.51 32.33 29.68 25.46 35.33 34.26 32.87 30.76",
        "ILSVRCval40": "33.79 31.11 28.69 25.01 33.65 32.77 31.59 29.68",
    },
    "large": {
        "Set11": "36.10 34.48 32.31 28.30 35.93 34.87 33.47 31.32",
        "ILSVRCval40": "34.28 32.97 31.06 27.51 34.13 33.27 32.08 30.14",
    },
    "fast": {
        "Set11": "34.93 33.61 31.65 27.73 34.75 33.91 32.61 30.38",
        "ILSVRCval40": "33.27 32.21 30.54 27.11 33.12 32.46 31.39 29.44",
    },
}
# PSNR in dB on Set11 by rate, with the same number of measurements in five adaptive rounds.
ADAPTIVE = {
    "flex": {0.04: "27.99", 0.1: "32.49", 0.25: "37.56"},
    "large": {0.04: "28.44", 0.1: "33.02", 0.25: "38.11"},
    "fast": {0.04: "27.49", 0.1: "31.90", 0.25: "36.89"},
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
    adaptive = "; ".join(
        f"{reached} at {rate:g} (uniform: {QUALITY[name][rate].split()[0]})"
        for rate, reached in ADAPTIVE[name].items()
    )
    return f"""
One network serves every rate, any count of measurements in any window, and readouts with errors,
which it is told. PSNR in dB at a rate of 0.25, with Gaussian noise of deviation σ (pixel values) on
every measurement, or with a converter of few bits, each pattern ranged for the image:

{_table(["", *READOUTS], readouts)}

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
