"""Draw PSNR against the number of non-zeros, from the table in results.md.

    python tools/nonzeros.py

It writes docs/images/nonzeros.png.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Read the table, draw the image."""
    table = (DOCS / "results.md").read_text(encoding="utf-8")
    rows = re.findall(r"\*{0,2}K = (\d+) \(.*?\| ([\d.]+) \| ([\d.]+) \|", table)
    dense = float(re.search(r"\| dense float \| ([\d.]+) \|", table)[1])  # type: ignore[index]
    counts = [int(row[0]) for row in rows]
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for column, name in (1, "Set11"), (2, "ILSVRCval40"):
        axes.plot(counts, [float(row[column]) for row in rows], "o-", label=name)
    axes.axhline(dense, color="C0", linestyle=":", label="Set11, dense float")
    axes.set_xscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("non-zeros per pattern, of 1024")
    axes.set_ylabel("PSNR, dB")
    axes.set_ylim(top=36)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center")
    figure.savefig(DOCS / "images" / "nonzeros.png", dpi=120)


if __name__ == "__main__":
    main()
