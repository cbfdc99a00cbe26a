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
    "flex": {
        0.01: "21.52 0.6073 22.53 0.5458 22.04 0.5634 22.22 0.5956 22.03 0.5792",
        0.04: "26.53 0.8068 25.46 0.6803 26.04 0.7157 26.00 0.7473 24.80 0.7159",
        0.1: "30.60 0.8955 28.04 0.7922 29.29 0.8254 29.28 0.8493 27.54 0.8252",
        0.25: "35.51 0.9530 31.81 0.9005 33.72 0.9173 33.79 0.9333 31.54 0.9197",
        0.5: "40.53 0.9793 36.46 0.9617 38.58 0.9635 38.92 0.9746 36.57 0.9702",
    },
    "large": {
        0.01: "22.06 0.6215 22.94 0.5534 22.51 0.5740 22.70 0.6040 22.37 0.5874",
        0.04: "27.07 0.8170 25.87 0.6907 26.59 0.7264 26.53 0.7588 25.27 0.7311",
        0.1: "31.48 0.9062 28.66 0.8068 30.09 0.8369 30.09 0.8609 28.26 0.8404",
        0.25: "36.66 0.9584 32.81 0.9124 34.72 0.9235 34.96 0.9402 32.58 0.9280",
        0.5: "41.49 0.9811 38.00 0.9689 39.44 0.9654 40.36 0.9780 38.33 0.9747",
    },
    "lapped": {
        0.01: "21.96 0.6109 22.93 0.5511 22.47 0.5689 22.69 0.6004 22.35 0.5840",
        0.04: "27.01 0.8141 25.85 0.6893 26.53 0.7243 26.46 0.7560 25.20 0.7272",
        0.1: "31.30 0.9020 28.61 0.8056 29.97 0.8343 29.98 0.8591 28.19 0.8377",
        0.25: "36.50 0.9573 32.73 0.9113 34.59 0.9225 34.83 0.9389 32.49 0.9262",
        0.5: "41.28 0.9805 37.79 0.9671 39.12 0.9636 40.18 0.9772 38.16 0.9731",
    },
    "fast": {
        0.01: "21.60 0.5950 22.76 0.5451 22.17 0.5586 22.41 0.5901 22.20 0.5771",
        0.04: "26.32 0.7969 25.55 0.6794 25.99 0.7107 25.94 0.7416 24.83 0.7108",
        0.1: "30.25 0.8861 28.16 0.7943 29.18 0.8211 29.16 0.8473 27.55 0.8230",
        0.25: "35.32 0.9501 32.09 0.9026 33.60 0.9148 33.75 0.9316 31.77 0.9181",
        0.5: "40.15 0.9768 36.79 0.9616 38.02 0.9594 38.75 0.9723 36.93 0.9675",
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
        "Set11": "36.66 35.50 33.62 29.72 36.51 35.47 34.00 31.72",
        "ILSVRCval40": "34.96 33.89 32.21 28.75 34.81 33.88 32.63 30.64",
    },
    "lapped": {
        "Set11": "36.50 35.36 33.50 29.65 36.35 35.29 33.78 31.44",
        "ILSVRCval40": "34.83 33.78 32.13 28.68 34.67 33.74 32.44 30.39",
    },
    "fast": {
        "Set11": "35.32 34.43 32.86 29.21 35.16 34.36 33.04 30.76",
        "ILSVRCval40": "33.75 32.99 31.62 28.38 33.60 32.96 31.87 29.87",
    },
}
# PSNR in dB on Set11 by rate, with the same number of measurements in five adaptive rounds.
ADAPTIVE = {
    "flex": {0.04: "27.99", 0.1: "32.49", 0.25: "37.56"},
    "large": {0.04: "28.50", 0.1: "33.01", 0.25: "38.17"},
    "lapped": {0.04: "28.42", 0.1: "32.81", 0.25: "37.99"},
    "fast": {0.04: "27.64", 0.1: "31.85", 0.25: "36.92"},
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
        # In half precision: that much is left of a compact file when it is written in full.
        if same and all(torch.equal(ours[key].cpu().half(), theirs[key].half()) for key in ours):
            return known.name
    return ""
