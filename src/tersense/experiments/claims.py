"""What the paper says, held against the results on disk: claim, figure, whether it holds.

Every sentence of the paper with a figure in it, or one that figures decide, is a `Claim`. Nothing
is run here: a claim whose rows have not been measured names the command that measures them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError, one_line
from tersense.experiments.results import WRONG, Missing, Results
from tersense.experiments.tables import DENSITIES, OWN, PUBLISHED_DENSITIES, RATES, TABLES
from tersense.sensing.patterns import nonzeros_for_density

NEGLIGIBLE = 0.1  # dB, about what another seed changes
_OVERFITTED = 1.05  # loss on held-out crops against that on crops trained on
ORDERS_OF_MAGNITUDE = 100  # times faster: two of them
HOLDS, FAILS, MISSING = "yes", "**no**", "not measured"

_OURS, _SDA = "r0.25-d0.05", "sda"
_BY_DENSITY = {density: f"r0.25-d{density:g}" for density in DENSITIES}
_BY_RATE = {rate: f"r{rate:g}-d0.1" for rate in RATES}
_DENSER = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Finding:
    """What the results say about a claim.

    Args:
        figures: In a line.
        verdict: Whether it holds.
    """

    figures: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper.

    Args:
        said: The sentence, shortened.
        published: The paper's own figures for it.
        table: Of `reproduce`, whose rows decide it, most of them at least.
        judge: Returns the finding, or raises `Missing`.
    """

    said: str
    published: str
    table: str
    judge: Callable[[Results], Finding]


def judge_claims(folder: Path, seed: int = 0) -> dict[str, Any]:
    """Hold every claim of the paper against the results below a folder.

    Args:
        folder: Where `reproduce` put them.
        seed: Of the training runs.

    Returns:
        Ready for JSON and `claims_to_markdown`.
    """
    results = Results(folder, seed)
    found = []
    for claim in CLAIMS:
        try:
            finding = claim.judge(results)
        except Missing as missing:
            finding = Finding(_commands(missing.rows, claim.table), MISSING)
        except TersenseError:
            raise
        except WRONG as error:
            raise TersenseError(
                f"the results below {folder} are not as reproduce writes them: {one_line(error)}"
            ) from error
        found.append({"claim": claim.said, "published": claim.published,
                      "figures": finding.figures, "holds": finding.verdict})  # fmt: skip
    return {"folder": folder.name, "seed": seed, "quick": results.quick, "claims": found}


def _commands(rows: list[str], table: str) -> str:
    """Return the commands that measure rows, by preference those of one table."""
    of_table = {name: {e.name for e in rows_of()} for name, rows_of in TABLES.items()}
    wanted: dict[str, list[str]] = {}
    for row in rows:
        tables = [name for name in (table, *of_table) if row in of_table[name]]
        wanted.setdefault(tables[0], []).append(f"--only {row}")
    return ", ".join(
        f"`tersense reproduce {name} --train DIR --test DIR {' '.join(only)}`"
        for name, only in wanted.items()
    )


def claims_to_markdown(result: dict[str, Any]) -> str:
    """Return the findings as a table."""
    lines = [
        "# claims",
        "",
        "What the paper says, and what was measured here: mean PSNR in dB, with overlapping "
        "windows (the paper's protocol) unless *blocks* are named.",
        "The paper's test sets are not public; our sets are others.",
    ]
    if result["quick"]:
        lines += ["", "**Quick runs of small cameras are among the results: this shows that it "
                  "works, and says nothing about the paper.**"]  # fmt: skip
    lines += ["", "| the paper says | its figures | measured here | holds |", "|---|---|---|---|"]
    for row in result["claims"]:
        cells = row["claim"], row["published"], row["figures"], row["holds"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdict(held: Iterable[bool]) -> str:
    """Say whether something holds on all sets, on none or on some."""
    every = list(held)
    if all(every):
        return HOLDS
    return f"on {sum(every)} of {len(every)} sets" if any(every) else FAILS


def _listed(protocol: str, figures: dict[str, str]) -> str:
    text = "; ".join(f"{test} {figure}" for test, figure in figures.items())
    return f"blocks: {text}" if protocol == OWN else text


def _series(rows: dict[float, str], holds: Callable[[list[float]], bool]) -> Any:
    """Judge by the PSNR of a series of rows, set by set."""

    def judge(results: Results) -> Finding:
        protocol, sets = results.psnr(*rows.values())
        shown = {test: " ".join(f"{v:.2f}" for v in values) for test, values in sets.items()}
        return Finding(_listed(protocol, shown), _verdict(holds(v) for v in sets.values()))

    return judge


def _difference(
    one: str, other: str, holds: Callable[[float], bool] = lambda gain: gain > 0, protocol: str = ""
) -> Any:
    """Judge by how far one row is above another, set by set."""

    def judge(results: Results) -> Finding:
        used, sets = results.psnr(one, other, protocol=protocol)
        gains = {test: a - b for test, (a, b) in sets.items()}
        shown = {test: f"{gain:+.2f}".replace("-", "−") for test, gain in gains.items()}
        return Finding(_listed(used, shown), _verdict(map(holds, gains.values())))

    return judge


def _rises(values: list[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _first_step_is_largest(values: list[float]) -> bool:
    steps = [b - a for a, b in pairwise(values)]
    return steps[0] == max(steps) > NEGLIGIBLE


def _peak_at_five_percent(values: list[float]) -> bool:
    return max(values) == values[DENSITIES.index(0.05)]


def _judge_order(results: Results) -> Finding:
    protocol, sets = results.psnr(_OURS, _SDA, "bp-dense")
    held = {test: _rises(values[::-1]) for test, values in sets.items()}
    shown = {test: (" > " if held[test] else ", ").join(f"{v:.2f}" for v in values)
             for test, values in sets.items()}  # fmt: skip
    return Finding(_listed(protocol, shown), _verdict(held.values()))


def _judge_counts(results: Results) -> Finding:
    """Compare the non-zeros of each pattern with K = ⌊γ·B²⌋."""
    results.require(*_BY_DENSITY.values())
    found, right = [], []
    for density, name in _BY_DENSITY.items():
        matrix = results.matrix(name)
        fewest, most = matrix["nonzeros_per_pattern"]
        found.append(f"{fewest}" if fewest == most else f"{fewest} to {most}")
        right.append(fewest == most == nonzeros_for_density(density, matrix["pixels"]))
    return Finding(f"K = {', '.join(found)}", HOLDS if all(right) else FAILS)


def _judge_coverage(results: Results) -> Finding:
    """Compare the pixels that no pattern uses before and after the jump."""
    results.require(*(_BY_DENSITY[density] for density in DENSITIES[:4]))
    matrices = {density: results.matrix(_BY_DENSITY[density]) for density in DENSITIES[:4]}
    shown = ", ".join(
        f"γ = {density:g}: {matrix['unused_pixels']} of {matrix['pixels']}"
        for density, matrix in matrices.items()
    )
    before, after = (matrices[density] for density in DENSITIES[:2])
    # Most of what was unseen must be seen after the jump, if that is to be its reason.
    seen = before["unused_pixels"] > 0 and after["unused_pixels"] < before["unused_pixels"] / 2
    return Finding(f"pixels that no pattern uses: {shown}", HOLDS if seen else FAILS)


def _judge_storage(results: Results) -> Finding:
    matrix = results.matrix(_OURS)
    forms = matrix["storage_bytes"]
    smallest = min((n, f) for f, n in forms.items() if "entropy" not in f)
    figures = (
        f"{smallest[0]:,} bytes ({smallest[1]}) instead of {forms['float32']:,} (float32) or "
        f"{forms['2-bit']:,} (2 bits per entry)"
    )
    return Finding(figures, HOLDS if smallest[0] < forms["2-bit"] else FAILS)


def _judge_additions(results: Results) -> Finding:
    matrix = results.matrix(_OURS)
    per_measurement, pixels = matrix["nonzeros"] / matrix["rows"], matrix["pixels"]
    figures = (
        f"{per_measurement:g} additions per measurement instead of {pixels} multiplications and "
        f"additions, {pixels / per_measurement:.1f} times fewer"
    )
    return Finding(figures, HOLDS if per_measurement < pixels / 10 else FAILS)


def _judge_conventional(results: Results) -> Finding:
    """Ask whether conventional recovery needs the density that the paper gave it."""
    protocol, sets = results.psnr("bp-dense", "bp-5", "bp-learned", protocol=OWN)
    shown = {
        test: f"{dense:.2f} dense, {sparse:.2f} 5 %, {learned:.2f} learned 5 %"
        for test, (dense, sparse, learned) in sets.items()
    }
    # "Unacceptable" is what is clearly worse than what the paper shows of BP.
    held = (max(sparse, learned) < dense - 1 for dense, sparse, learned in sets.values())
    return Finding(f"BP as {_listed(protocol, shown)}", _verdict(held))


def _judge_network(results: Results) -> Finding:
    """Ask whether the network is better than conventional recovery from its own matrix."""
    protocol, sets = results.psnr(_OURS, "bp-learned", "tv-learned", protocol=OWN)
    shown = {test: f"{ours:.2f} network, {bp:.2f} BP, {tv:.2f} TV"
             for test, (ours, bp, tv) in sets.items()}  # fmt: skip
    held = (ours > max(bp, tv) for ours, bp, tv in sets.values())
    return Finding(_listed(protocol, shown), _verdict(held))


def _judge_speed(results: Results) -> Finding:
    names = _OURS, "bp-5", "tv-5"
    devices = {row.get("device", "") for row in results.require(*names)}
    if len(devices) > 1:  # times of different machines say nothing
        return Finding("measured on different devices; see `tersense bench methods`", MISSING)
    ours, bp, tv = results.seconds(*names)
    ratios = [seconds / ours for seconds in (bp, tv)]
    figures = (
        f"blocks, seconds per image: network {ours:.3g}, BP {bp:.3g} ({ratios[0]:.0f}×), TV "
        f"{tv:.3g} ({ratios[1]:.0f}×); beside each other and by size: `tersense bench methods`"
    )
    return Finding(figures, HOLDS if min(ratios) >= ORDERS_OF_MAGNITUDE else FAILS)


def _judge_overfitting(results: Results) -> Finding:
    """Ask whether denser matrices fit the crops that they were trained on better than others."""
    names = [f"{_BY_DENSITY[density]}-unsettled" for density in (0.05, *_DENSER)]
    rows = results.require(*names)
    last = [row["epochs"][-1] if row.get("epochs") else None for row in rows]
    if None in last:
        raise Missing(n for n, entry in zip(names, last, strict=True) if entry is None)
    figures = "; ".join(
        f"γ = {density:g}: {entry['trained']:.1f} on crops trained on, {entry['held_out']:.1f} on "
        f"held-out ones ({entry['held_out_running']:.1f} with running averages)"
        for density, entry in zip((0.05, *_DENSER), last, strict=True)
        if entry
    )
    gaps = [entry["held_out"] / entry["trained"] for entry in last if entry]
    held = all(gap > _OVERFITTED and gap > gaps[0] for gap in gaps[1:])
    return Finding(f"loss, {figures}", HOLDS if held else FAILS)


_published = PUBLISHED_DENSITIES
CLAIMS = (
    Claim("The quality gets better with larger sensing rates.", "25.24 26.11 26.65 27.52 27.96",
          "rates", _series(_BY_RATE, _rises)),
    Claim("Patterns have exactly K = ⌊γ·S²⌋ non-zeros.", "K = 1, 5, 10, 51, 102, 307, 1024",
          "sparsity", _judge_counts),
    Claim("From γ = 0.001 to 0.005 the quality improves considerably (the largest step).",
          " ".join(f"{v:.2f}" for v in _published.values()), "sparsity",
          _series(_BY_DENSITY, _first_step_is_largest)),
    Claim("The reason: 256 non-zeros do not cover the 1024 pixels, 1280 do.",
          "256 and 1280 non-zeros", "sparsity", _judge_coverage),
    Claim("The difference between γ = 0.005 and 0.010 is negligible.", "+0.02", "sparsity",
          _difference("r0.25-d0.01", "r0.25-d0.005", lambda gain: abs(gain) <= NEGLIGIBLE)),
    Claim("The best γ is 0.050; 0.1, 0.3 and 1 are slightly worse.", "27.61 at 0.05", "sparsity",
          _series(_BY_DENSITY, _peak_at_five_percent)),
    Claim("The reason: over-fitting with γ = 0.1, 0.3 and 1; sparsity regularizes.", "",
          "as-published", _judge_overfitting),
    Claim("Even 0.1 % non-zeros give an acceptable quality (better than BP with a dense matrix).",
          "25.83, BP 21.93", "comparison", _difference("r0.25-d0.001", "bp-dense")),
    Claim("The order is ours, O-NL-SDA, BP.", "27.61 > 26.96 > 21.93; 33.15 > 31.38 > 24.04",
          "comparison", _judge_order),
    Claim("5 % ternary outperforms O-NL-SDA, which is dense.", "+0.65, +1.77", "comparison",
          _difference(_OURS, _SDA)),
    Claim("It is significantly better than BP with dense ternary projections.", "+5.68, +9.11",
          "comparison", _difference(_OURS, "bp-dense", lambda gain: gain > 1)),
    Claim("The same as blocks, as a camera senses.", "", "comparison",
          _difference(_OURS, "bp-dense", lambda gain: gain > 1, OWN)),
    Claim("Conventional algorithms fail with so sparse a matrix.", "", "comparison",
          _judge_conventional),
    Claim("Optimizing matrix and network together is what gives the quality (against conventional "
          "recovery from the same matrix).", "", "comparison", _judge_network),
    Claim("The same, against a random matrix with a network of its own.", "", "comparison",
          _difference(_OURS, "random")),
    Claim("A sparse ternary matrix can be stored efficiently.", "", "comparison", _judge_storage),
    Claim("It makes acquisition fast: few additions, no multiplication.", "", "comparison",
          _judge_additions),
    Claim("The network is faster than a convex solver by orders of magnitude (100 times).", "",
          "comparison", _judge_speed),
    Claim("ℓ2 = 0.001 helps, against over-fitting.", "", "ablations", _difference("l2", _OURS)),
)  # fmt: skip
