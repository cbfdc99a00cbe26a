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
        0.01: "21.49 0.6105 22.50 0.5474 21.94 0.5647 22.18 0.5982 22.01 0.5810",
        0.04: "26.37 0.8042 25.44 0.6800 25.99 0.7149 25.95 0.7474 24.74 0.7153",
        0.1: "30.46 0.8931 28.02 0.7914 29.19 0.8236 29.26 0.8491 27.48 0.8246",
        0.25: "35.42 0.9523 31.78 0.9001 33.63 0.9166 33.74 0.9330 31.50 0.9195",
        0.5: "40.45 0.9790 36.42 0.9615 38.49 0.9631 38.85 0.9744 36.55 0.9703",
    },
    "large": {
        0.01: "21.93 0.6162 22.86 0.5521 22.43 0.5725 22.63 0.6034 22.32 0.5862",
        0.04: "26.95 0.8145 25.73 0.6878 26.43 0.7245 26.38 0.7563 25.13 0.7283",
        0.1: "30.96 0.8998 28.35 0.8004 29.73 0.8335 29.72 0.8567 27.90 0.8344",
        0.25: "36.03 0.9564 32.12 0.9051 34.21 0.9213 34.23 0.9370 31.89 0.9242",
        0.5: "41.11 0.9811 37.06 0.9664 39.22 0.9667 39.56 0.9778 37.20 0.9743",
    },
    "fast": {
        0.01: "21.48 0.5913 22.66 0.5428 22.06 0.5557 22.31 0.5884 22.10 0.5737",
        0.04: "26.10 0.7900 25.43 0.6759 25.80 0.7065 25.82 0.7380 24.71 0.7061",
        0.1: "29.84 0.8813 27.93 0.7889 28.90 0.8177 28.90 0.8433 27.26 0.8176",
        0.25: "34.87 0.9483 31.59 0.8973 33.11 0.9116 33.21 0.9289 31.27 0.9157",
        0.5: "40.10 0.9781 36.43 0.9627 38.16 0.9627 38.47 0.9742 36.50 0.9701",
    },
}
# PSNR in dB of universal networks at 25 %: σ of the noise in pixel values, bits of a converter.
READOUTS = ("exact", "σ = 60", "σ = 150", "σ = 500", "8 bits", "6 bits", "5 bits", "4 bits")
UNIVERSAL = {
    "flex": {
        "Set11": "35.42 32.30 29.63 25.41 35.25 34.21 32.82 30.71",
        "ILSVRCval40": "33.74 31.07 28.67 24.97 33.60 32.75 31.56 29.67",
    },
    "large": {
        "Set11": "36.03 34.43 32.26 28.24 35.87 34.80 33.39 31.24",
        "ILSVRCval40": "34.23 32.93 31.04 27.47 34.09 33.24 32.04 30.10",
    },
    "fast": {
        "Set11": "34.87 33.54 31.59 27.68 34.66 33.84 32.54 30.30",
        "ILSVRCval40": "33.21 32.16 30.50 27.08 33.04 32.39 31.33 29.40",
    },
}
# PSNR in dB on Set11 by rate, with the same number of measurements in five adaptive rounds.
ADAPTIVE = {
    "flex": {0.04: "27.77", 0.1: "32.34", 0.25: "37.34"},
    "large": {0.04: "28.38", 0.1: "32.84", 0.25: "37.96"},
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
