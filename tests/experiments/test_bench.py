"""The benchmark's own honesty; the times themselves are nobody's test."""

import json

import numpy as np
import pytest

from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.experiments.bench import sensing as bench


def test_bench_sense_writes_table_json_and_plot(tmp_path, capsys):
    out, plot = tmp_path / "sense.json", tmp_path / "sense.png"
    assert main(["bench", "sense", "--quick", "--json", str(out), "--plot", str(plot)]) == 0
    result = json.loads(out.read_text())
    assert all(case["exact"] for case in result["cases"])
    for case in result["cases"]:
        assert set(case["ratios"]) == {"torch f32", "numpy f32", "torch i8", "scipy CSR"}
        for name, ratio in case["ratios"].items():
            assert ratio == pytest.approx(case["seconds"][name] / case["seconds"]["add-only"])
    assert result["lapped"]["throughput_ratio"] > 0
    assert result["threads"]["speedup_shared"] > 0
    assert result["threads"]["speedup_stream"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "same integers" in capsys.readouterr().out


@pytest.mark.parametrize("k", [1, 51, 307, 1024])
def test_all_contestants_sense_the_same_integers(k):
    phi = bench.random_patterns(9, k)
    image = np.random.default_rng(1).integers(0, 256, (64, 96), dtype=np.uint8)
    contestants = bench.sensing_contestants(phi)
    add_only = contestants.pop("add-only")(image).reshape(9, -1).T
    for name, sense in contestants.items():
        np.testing.assert_array_equal(np.asarray(sense(image)), add_only, err_msg=name)


def test_a_contestant_that_cheats_is_found_out(monkeypatch):
    honest = bench.sensing_contestants

    def with_a_cheat(phi):
        return honest(phi) | {"cheat": lambda image: np.zeros((64, 256), np.int32)}

    monkeypatch.setattr(bench, "sensing_contestants", with_a_cheat)
    with pytest.raises(TersenseError, match="cheat gave other integers"):
        bench.bench_sensing(quick=True)


def test_a_race_takes_turns():
    order = []

    def run(name, takes):
        order.append((name, takes))

    def clock():
        return sum(takes for _, takes in order)

    runs = {"a": lambda: run("a", 2), "b": lambda: run("b", 1)}
    times = bench.race(runs, seconds=0.0, clock=clock, turn=4)
    # Twice to warm up, then in turns of four seconds.
    assert "".join(name for name, _ in order)[:16] == "aabb" + 2 * "aabbbb"
    assert times == {"a": 2, "b": 1}


def test_a_plot_of_unknown_format_is_refused_before_the_work(tmp_path, capsys):
    assert main(["bench", "sense", "--quick", "--plot", str(tmp_path / "p.xyz")]) == 2
    assert ".png, .svg or .pdf" in capsys.readouterr().err


def test_bench_reconstruct_times_every_model_in_both_precisions(tmp_path, capsys):
    out = tmp_path / "reconstruct.json"
    arguments = ["bench", "reconstruct", "--quick", "-m", "paper-r25", "--json", str(out)]
    assert main(arguments) == 0
    cases = json.loads(out.read_text())["cases"]
    assert [case["side"] for case in cases] == [64, 128]
    for case in cases:
        assert {"float32", "yardstick"} <= set(case["seconds"])
        assert ("bfloat16" in case["seconds"]) == (case["bfloat16_share"] is not None)
        assert case["peak_bytes"] > 2**26  # torch alone takes more
    assert "paper-r25" in capsys.readouterr().out


def test_bench_train_counts_what_a_step_computes(tmp_path, capsys):
    out = tmp_path / "train.json"
    changes = ["train.batch=2", "data.samples=2", "data.crop=64", "reconstructor.phases=2",
               "reconstructor.channels=8", "train.compile=false", "train.device=cpu"]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    assert main(["bench", "train", "configs/block-r25.toml", *options, "--quick",
                 "--json", str(out)]) == 0  # fmt: skip
    result = json.loads(out.read_text())
    assert result["pixels_per_second"] == pytest.approx(2 * 64**2 / result["seconds_a_step"])
    # The convolutions alone, forwards, need 2·9·8·8/4 operations per pixel each, five a phase.
    assert result["flops_a_pixel"] > 3 * 2 * 5 * 288
