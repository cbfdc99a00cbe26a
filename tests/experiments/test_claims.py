"""The paper's claims against results written by hand: each holds or fails as its figures say."""

import json
import shutil

import pytest

from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.experiments.claims import CLAIMS, FAILS, HOLDS, MISSING, claims_to_markdown
from tersense.experiments.claims import judge_claims as judge
from tersense.experiments.matrices import describe_patterns
from tersense.experiments.results import Missing, Results
from tersense.experiments.tables import OVERLAPPING, OWN, PUBLISHED_DENSITIES, PUBLISHED_RATES
from tersense.io.files import write_json
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.sensing.patterns import random_patterns

FIRST, SECOND = "ILSVRC10", "LabelMe50"


def figure(psnr, seconds=1.0):
    return {"mean": {"psnr": psnr}, "images": [{"name": "a", "psnr": psnr, "seconds": seconds}]}


def write_row(folder, name, overlapping=None, own=None, seconds=1.0, **more):
    """Write the result of a row: PSNR on the first set, or on both."""
    sets = {}
    for protocol, figures in ((OVERLAPPING, overlapping), (OWN, own)):
        figures = figures if isinstance(figures, tuple) else (figures,)
        for test, psnr in zip((FIRST, SECOND), figures, strict=False):
            if psnr is not None:
                sets.setdefault(test, {})[protocol] = figure(psnr, seconds)
    (folder / name).mkdir(parents=True)
    result = {"protocol": {"quick": False}, "sets": sets, **more}
    write_json(folder / name / "result.json", result)


def losses(trained, held_out):
    return {"trained": trained, "held_out": held_out, "held_out_running": 2 * held_out}


def find(result, words):
    (row,) = [row for row in result["claims"] if words in row["claim"]]
    return row


def matrix(density):
    patterns = random_patterns(256, 32, density)
    return {"rows": 256, "pixels": 1024} | describe_patterns(patterns)


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Results exactly as the paper's, with what it says in words made up to fit."""
    folder = tmp_path_factory.mktemp("papers")
    for rate, psnr in PUBLISHED_RATES.items():
        if rate != 0.25:
            write_row(folder, f"r{rate:g}-d0.1", psnr)
    for density, psnr in PUBLISHED_DENSITIES.items():
        both = (27.61, 33.15) if density == 0.05 else psnr
        write_row(folder, f"r0.25-d{density:g}", both, both, seconds=0.01, matrix=matrix(density))
        gap = 1.1 if density > 0.05 else 1.0
        write_row(folder, f"r0.25-d{density:g}-unsettled", both, epochs=[losses(20.0, 20.0 * gap)])
    write_row(folder, "sda", (26.96, 31.38))
    write_row(folder, "random", (26.0, 30.0))
    write_row(folder, "bp-dense", (21.93, 24.04), (21.93, 24.04))
    for name, psnr in (("bp-5", 15.0), ("tv-5", 16.0), ("bp-learned", 15.0), ("tv-learned", 16.0)):
        write_row(folder, name, own=psnr)
    write_row(folder, "l2", 27.9)
    return folder


def test_the_papers_own_figures_hold(papers):
    result = judge(papers)
    assert len(result["claims"]) == len(CLAIMS) >= 19
    assert {row["claim"]: row["holds"] for row in result["claims"]} == {
        claim.said: HOLDS for claim in CLAIMS
    }
    assert "+0.65; LabelMe50 +1.77" in find(result, "outperforms O-NL-SDA")["figures"]
    assert "51 additions" in find(result, "few additions")["figures"]
    assert "BP 1 (100×)" in find(result, "orders of magnitude")["figures"]
    assert find(result, "exactly K")["figures"] == "K = 1, 5, 10, 51, 102, 307, 1024"


def test_unused_pixels_are_counted_in_the_learned_matrix(papers):
    phi = random_patterns(256, 32, 0.001).phi
    unused = int((phi != 0).any(axis=0).size - (phi != 0).any(axis=0).sum())
    assert unused >= 768
    assert f"γ = 0.001: {unused} of 1024" in find(judge(papers), "do not cover")["figures"]


def test_results_without_a_matrix_are_described_by_their_model(tmp_path):
    patterns = random_patterns(16, 8, 0.1)
    write_row(tmp_path, "r0.25-d0.05", 27.0)
    write_model(tmp_path / "r0.25-d0.05/model.safetensors", Imager.untrained(patterns))
    found = Results(tmp_path).matrix("r0.25-d0.05")
    assert found == {"rows": 16, "pixels": 64} | describe_patterns(patterns)
    write_row(tmp_path, "float", 27.0)
    with pytest.raises(Missing):
        Results(tmp_path).matrix("float")


def test_learned_matrices_refute_that_conventional_recovery_fails(tmp_path):
    write_row(tmp_path, "r0.25-d0.05", 31.18, 29.34)
    for name, psnr in (("bp-dense", 24.06), ("bp-5", 23.90), ("bp-learned", 30.21)):
        write_row(tmp_path, name, own=psnr)
    write_row(tmp_path, "tv-learned", own=31.50)
    result = judge(tmp_path)
    sparse = find(result, "Conventional algorithms fail")
    assert sparse["holds"] == FAILS
    assert "24.06 dense, 23.90 5 %, 30.21 learned 5 %" in sparse["figures"]
    together = find(result, "conventional recovery from the same matrix")
    assert together["holds"] == FAILS
    assert together["figures"] == "blocks: ILSVRC10 29.34 network, 30.21 BP, 31.50 TV"


def test_random_sparse_matrices_alone_refute_it_too(tmp_path):
    """Not clearly worse than dense ones is no failure."""
    for name, psnr in (("bp-dense", 24.06), ("bp-5", 23.90), ("bp-learned", 20.0)):
        write_row(tmp_path, name, own=psnr)
    assert find(judge(tmp_path), "Conventional algorithms fail")["holds"] == FAILS


def test_what_holds_on_some_sets_says_on_how_many(tmp_path):
    write_row(tmp_path, "r0.25-d0.05", (27.0, 26.0))
    write_row(tmp_path, "sda", (26.0, 26.5))
    assert find(judge(tmp_path), "outperforms O-NL-SDA")["holds"] == "on 1 of 2 sets"


def test_rows_are_compared_by_one_protocol_and_on_common_sets(tmp_path):
    write_row(tmp_path, "r0.25-d0.05", overlapping=30.0, own=(29.0, 28.0))
    write_row(tmp_path, "sda", own=(26.0, 26.5))
    row = find(judge(tmp_path), "outperforms O-NL-SDA")
    assert row["figures"] == "blocks: ILSVRC10 +3.00; LabelMe50 +1.50"


@pytest.mark.parametrize(
    ("words", "density", "changed"),
    [
        ("negligible", 0.005, 27.8),
        ("The best γ is 0.050", 0.005, 27.8),
        ("larger sensing rates", 0.1, 26.0),
        ("(the largest step)", 0.001, 26.9),
    ],
)
def test_other_figures_than_the_papers_are_noticed(papers, tmp_path, words, density, changed):
    for path in sorted(papers.iterdir()):
        if path.name != f"r0.25-d{density:g}":
            shutil.copytree(path, tmp_path / path.name)
    write_row(tmp_path, f"r0.25-d{density:g}", changed)
    assert find(judge(tmp_path), words)["holds"] == FAILS


@pytest.mark.parametrize(
    ("dense", "verdict"), [((19.0, 23.0), HOLDS), ((27.3, 27.4), FAILS), ((19.0, 19.2), FAILS)]
)
def test_over_fitting_is_a_better_fit_of_training_crops_than_of_others(tmp_path, dense, verdict):
    for density in (0.05, 0.1, 0.3, 1.0):
        last = (20.0, 20.1) if density == 0.05 else dense
        write_row(
            tmp_path, f"r0.25-d{density:g}-unsettled", 27.0,
            epochs=[losses(60.0, 90.0), losses(*last)],
        )  # fmt: skip
    row = find(judge(tmp_path), "over-fitting with")
    assert row["holds"] == verdict
    assert "γ = 0.05: 20.0 on crops trained on, 20.1 on held-out ones (40.2 with" in row["figures"]


def test_missing_rows_name_the_command_that_makes_them(tmp_path):
    write_row(tmp_path, "bp-dense", 21.0)
    result = judge(tmp_path)
    assert {row["holds"] for row in result["claims"]} == {MISSING}
    acceptable = find(result, "Even 0.1 %")["figures"]
    assert acceptable == "`tersense reproduce sparsity --train DIR --test DIR --only r0.25-d0.001`"
    order = find(result, "The order is")["figures"]
    assert order.endswith(
        "reproduce comparison --train DIR --test DIR --only r0.25-d0.05 --only sda`"
    )


def test_times_of_different_devices_are_not_compared(tmp_path):
    for name, device in (("r0.25-d0.05", "cuda"), ("bp-5", "cpu"), ("tv-5", "cpu")):
        write_row(tmp_path, name, own=25.0, device=device)
    assert find(judge(tmp_path), "orders of magnitude")["holds"] == MISSING


def test_a_row_measured_in_parts_is_put_together(tmp_path):
    write_row(tmp_path / "own", "bp-5", own=23.0)
    write_row(tmp_path / "overlapping", "bp-5", overlapping=26.0)
    results = Results(tmp_path)
    assert results.psnr("bp-5") == (OVERLAPPING, {FIRST: [26.0]})
    assert results.psnr("bp-5", protocol=OWN) == (OWN, {FIRST: [23.0]})
    write_row(tmp_path / "again", "bp-5", own=24.0)
    with pytest.raises(TersenseError, match="both hold bp-5 on ILSVRC10; name one folder"):
        Results(tmp_path)


def test_seeds_are_kept_apart(tmp_path):
    write_row(tmp_path, "bp-5", 23.0)
    write_row(tmp_path, "bp-5-seed2", 24.0)
    assert Results(tmp_path).psnr("bp-5")[1] == {FIRST: [23.0]}
    assert Results(tmp_path, seed=2).psnr("bp-5")[1] == {FIRST: [24.0]}
    with pytest.raises(TersenseError, match="no results of seed 1"):
        judge(tmp_path, seed=1)


def test_quick_runs_are_called_so(tmp_path):
    (tmp_path / "bp-5").mkdir()
    result = {"protocol": {"quick": True}, "sets": {FIRST: {OWN: figure(23.0)}}}
    write_json(tmp_path / "bp-5/result.json", result)
    assert "says nothing about the paper" in claims_to_markdown(judge(tmp_path))


def test_the_command_needs_no_images_and_prints_what_it_writes(papers, tmp_path, capsys):
    for path in sorted(papers.iterdir()):
        shutil.copytree(path, tmp_path / path.name)
    assert main(["reproduce", "claims", "-o", str(tmp_path)]) == 0
    text = (tmp_path / "claims.md").read_text()
    assert capsys.readouterr().out.startswith(text)
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [row["holds"] for row in written["claims"]] == [HOLDS] * len(CLAIMS)


@pytest.mark.parametrize(
    "arguments", [["claims", "-o", "none"], ["rates"], ["rates", "--train", "."]]
)
def test_what_cannot_be_judged_or_run_is_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
