"""The paper's tables, small: they run, resume, refuse to mix, and hold what they say."""

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import get_args, get_type_hints

import numpy as np
import pytest
from skimage import data

import tersense.experiments.matrices
import tersense.experiments.runner
from tersense.cli.program import main
from tersense.cli.training import reproduce
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr as psnr_of
from tersense.experiments.readouts import CONDITIONS
from tersense.experiments.report import to_markdown
from tersense.experiments.runner import run_experiment, run_table
from tersense.experiments.tables import (
    PUBLISHED_DENSITIES,
    PUBLISHED_RATES,
    TABLES,
    Experiment,
    Options,
    choose_experiments,
    protocols,
    recipe,
)
from tersense.io.images import read_gray, write_image
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.models.zoo import load
from tersense.sensing.patterns import random_patterns
from tersense.training.loop import Loop


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    train, test = tmp_path_factory.mktemp("photos"), tmp_path_factory.mktemp("Stand-in")
    write_image(train / "a.png", data.astronaut())
    write_image(train / "b.png", data.coffee())
    write_image(test / "camera.png", data.camera()[100:148, 200:240])
    write_image(test / "moon.png", data.moon()[100:148, 200:240])
    return train, test


def quick(folders, out, **changes):
    settings = {"epochs": 1, "quick": True, "device": "cpu"} | changes
    return Options(folders[0], (folders[1],), out, **settings)


def replace_patterns(imager):
    """Return a camera with other patterns and the same network."""
    patterns = random_patterns(imager.rows, imager.geometry.window, 0.05, seed=9)
    return Imager(imager.name, patterns, imager.operator.alpha, imager.mean, imager.std,
                  imager.reconstructor)  # fmt: skip


def test_a_table_has_markdown_json_and_a_plot(folders, tmp_path, capsys):
    arguments = ["reproduce", "sparsity", "--quick", "--epochs", "1", "-o", str(tmp_path / "out")]
    folders_given = ["--train", str(folders[0]), "--test", str(folders[1])]
    assert main([*arguments, *folders_given]) == 0
    text = (tmp_path / "out/sparsity.md").read_text()
    result = json.loads((tmp_path / "out/sparsity.json").read_text())
    assert (tmp_path / "out/sparsity.png").read_bytes().startswith(b"\x89PNG")
    for published in PUBLISHED_DENSITIES.values():
        assert f"{published:.2f}" in text
    for row in result["rows"]:
        figures = row["sets"][folders[1].name]
        assert f"{figures['overlapping']['mean']['psnr']:.2f}" in text
        for image in figures["overlapping"]["images"]:
            assert f"{image['psnr']:.2f}" in text
    assert "not public" in text


def test_the_comparison_runs_every_method(folders, tmp_path):
    result = run_table("comparison", quick(folders, tmp_path), say=lambda text: None)
    figures = {row["name"]: row["sets"][folders[1].name] for row in result["rows"]}
    matrices = ("5", "learned", "paper-r25", "block-r25", "5-r10", "flex-r10")
    assert set(figures) == {"r0.25-d0.05", "float", "random", "sda", "bp-dense"} | {
        f"{method}-{matrix}" for method in ("bp", "tv") for matrix in matrices
    }
    assert "overlapping" not in figures["tv-5"]
    for name in set(figures) - {"sda"}:
        assert figures[name]["own geometry"]["mean"]["psnr"] > 15, name
    assert re.search(r"total variation.*–", to_markdown(result))
    # Every row tells which matrix it really used.
    matrix = {row["name"]: row["matrix"] for row in result["rows"]}
    learned = load(tmp_path / "r0.25-d0.05").patterns
    assert {matrix[name]["phi"] for name in ("r0.25-d0.05", "bp-learned", "tv-learned")} == {
        learned.hash
    }
    for model in ("paper-r25", "block-r25", "flex-r10"):
        patterns = load("flex").patterns.first(102) if model == "flex-r10" else load(model).patterns
        assert matrix[f"bp-{model}"] == matrix[f"tv-{model}"]
        assert matrix[f"tv-{model}"]["phi"] == patterns.hash
        assert matrix[f"tv-{model}"]["nonzeros"] == patterns.nonzeros
    assert matrix["float"]["density"] == 1
    assert 0.6 < matrix["bp-dense"]["density"] < 0.73


def test_the_matrix_of_a_row_is_learned_first_where_it_is_not_there(folders, tmp_path):
    said = []
    options = quick(folders, tmp_path, only=("tv-learned",), protocol="own")
    result = run_table("comparison", options, said.append)
    assert [row["name"] for row in result["rows"]] == ["tv-learned"]
    assert said[0] == "ours (5 % ternary): trained first, because other rows use its Φ"
    assert load(tmp_path / "r0.25-d0.05").patterns.hash == result["rows"][0]["matrix"]["phi"]
    # The camera serves whatever it was measured on; another one's results are not mixed in.
    (tmp_path / "tv-learned/result.json").unlink()
    again = []
    run_table("comparison", replace(options, protocol="both"), again.append)
    assert len(again) == 1
    with pytest.raises(TersenseError, match="made with other settings"):
        run_table("comparison", replace(options, epochs=2), again.append)


def test_results_with_another_learned_matrix_are_not_mixed_in(folders, tmp_path):
    options = quick(folders, tmp_path, only=("tv-learned",), protocol="own")
    run_table("comparison", options, lambda text: None)
    path = tmp_path / "r0.25-d0.05/model.safetensors"
    write_model(path, replace_patterns(load(path)))
    with pytest.raises(TersenseError, match=r"other settings, data or protocol \(phi\)"):
        run_table("comparison", options, lambda text: None)
    path.unlink()
    with pytest.raises(TersenseError, match="holds no model"):
        run_table("comparison", options, lambda text: None)


def test_a_row_of_a_model_that_is_not_there_is_refused_before_training(
    folders, tmp_path, monkeypatch
):
    monkeypatch.setattr(tersense.experiments.matrices, "names", lambda: ["paper-r25"])
    with pytest.raises(TersenseError, match="bp-block-r25 needs the built-in model block-r25"):
        run_table("comparison", quick(folders, tmp_path / "out"), lambda text: None)
    assert not (tmp_path / "out").exists()


def test_chosen_rows_by_one_protocol(folders, tmp_path):
    arguments = ["reproduce", "comparison", "--quick", "--epochs", "1", "-o", str(tmp_path / "out")]
    given = ["--train", str(folders[0]), "--test", str(folders[1])]
    chosen = ["--only", "bp-dense", "--only", "tv-5", "--protocol", "own"]
    assert main([*arguments, *given, *chosen]) == 0
    result = json.loads((tmp_path / "out/comparison.json").read_text())
    figures = {row["name"]: row["sets"][folders[1].name] for row in result["rows"]}
    assert {name: set(f) for name, f in figures.items()} == {
        "tv-5": {"own geometry"}, "bp-dense": {"own geometry"}
    }  # fmt: skip
    text = (tmp_path / "out/comparison.md").read_text()
    for row in figures.values():
        assert f"– ({row['own geometry']['mean']['psnr']:.2f})" in text
        for image in row["own geometry"]["images"]:
            assert f"{image['psnr']:.2f}" in text
    assert (tmp_path / "out/comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_result_by_one_protocol_does_not_pass_for_both(folders, tmp_path):
    options = quick(folders, tmp_path, only=("bp-dense",), protocol="own")
    run_table("comparison", options, lambda text: None)
    with pytest.raises(TersenseError, match="other settings, data or protocol"):
        run_table("comparison", replace(options, protocol="both"), lambda text: None)


def test_rows_that_do_not_exist_or_cannot_be_measured_are_refused(folders, tmp_path):
    rows = TABLES["comparison"]()
    with pytest.raises(TersenseError, match=r"called bp-dens; did you mean bp-dense\?"):
        choose_experiments(rows, quick(folders, tmp_path, only=("bp-dens",)))
    overlapping = quick(folders, tmp_path, only=("bp-5", "tv-5"), protocol="overlapping")
    with pytest.raises(TersenseError, match="--protocol own"):
        choose_experiments(rows, overlapping)
    all_possible = choose_experiments(rows, replace(overlapping, only=()))
    left_out = {e.name for e in rows} - {e.name for e in all_possible}
    assert left_out == {e.name for e in rows if e.method == "tv"}
    assert "tv-5" in left_out
    assert all(set(protocols(e, overlapping)) == {"overlapping"} for e in all_possible)


@pytest.mark.parametrize(("epochs", "fifth", "half"), [(50, 10, 25), (10, 2, 5), (3, 1, 2)])
def test_frozen_rows_scale_with_the_budget(folders, tmp_path, epochs, fifth, half):
    options = Options(folders[0], (folders[1],), tmp_path, epochs=epochs, device="cpu")
    frozen = [recipe(e, options).train.freeze_epochs for e in TABLES["ablations"]()]
    assert frozen == [0, 0, 0, 0, 0, 0, 0, fifth, half]
    assert all(recipe(e, options).train.freeze_epochs == half for e in TABLES["frozen"]())


def test_frozen_patterns_are_table_2_with_folders_of_their_own(folders, tmp_path):
    options = Options(folders[0], (folders[1],), tmp_path, device="cpu")
    moving, frozen = TABLES["sparsity"](), TABLES["frozen"]()
    for one, other in zip(moving, frozen, strict=True):
        before, after = asdict(recipe(one, options)), asdict(recipe(other, options))
        assert before["train"].pop("freeze_epochs") == 0
        assert after["train"].pop("freeze_epochs") == 25
        assert before["train"].pop("out") != after["train"].pop("out")
        assert before == after
        assert one.published == other.published
    # the ablation and the table are one experiment, trained once
    assert {e.name for e in frozen} & {e.name for e in TABLES["ablations"]()} == {
        "r0.25-d0.05-frozen0.5"
    }


def test_patterns_stay_after_their_share_of_the_training(folders, tmp_path):
    """Trained further from the moment of freezing, the same patterns come out."""
    whole = Experiment("whole", "whole", learned=0.5)
    run_experiment(whole, quick(folders, tmp_path, epochs=4))
    early = Experiment("early", "early")
    run_experiment(early, quick(folders, tmp_path, epochs=2))
    phi = [tersense.load(str(tmp_path / name)).phi for name in ("whole", "early")]
    np.testing.assert_array_equal(*phi)


def test_what_is_done_is_not_done_again(folders, tmp_path, monkeypatch):
    options = quick(folders, tmp_path)
    experiments = TABLES["rates"]()[:2]
    run_table("rates", options, lambda text: None, experiments)
    (tmp_path / experiments[1].name / "result.json").unlink()
    done = []
    honest = run_experiment
    monkeypatch.setattr(
        tersense.experiments.runner,
        "run_experiment",
        lambda e, o: (done.append(e.name), honest(e, o))[1],
    )
    run_table("rates", options, lambda text: None, experiments)
    assert done == [experiments[1].name]


def test_an_interrupted_training_goes_on(folders, tmp_path):
    experiment = TABLES["rates"]()[0]
    whole = run_experiment(experiment, quick(folders, tmp_path / "whole", epochs=3))
    run_experiment(experiment, quick(folders, tmp_path / "parts", epochs=1))
    (tmp_path / "parts" / experiment.name / "result.json").unlink()
    parts = run_experiment(experiment, quick(folders, tmp_path / "parts", epochs=3))
    assert parts["steps"] == whole["steps"]
    assert parts["sets"][folders[1].name]["own geometry"]["mean"] == pytest.approx(
        whole["sets"][folders[1].name]["own geometry"]["mean"]
    )


def test_results_of_another_protocol_are_not_mixed_in(folders, tmp_path):
    experiments = TABLES["rates"]()[:1]
    run_table("rates", quick(folders, tmp_path), lambda text: None, experiments)
    with pytest.raises(TersenseError, match="other settings, data or protocol"):
        run_table("rates", quick(folders, tmp_path, epochs=2), lambda text: None, experiments)


@pytest.mark.parametrize("which", ["train", "test"])
def test_results_on_other_images_of_the_same_folder_are_not_mixed_in(folders, tmp_path, which):
    train, test = tmp_path / "photos", tmp_path / "Set"
    shutil.copytree(folders[0], train)
    shutil.copytree(folders[1], test)
    experiments = TABLES["rates"]()[:1]
    options = quick((train, test), tmp_path / "out")
    run_table("rates", options, lambda text: None, experiments)
    run_table("rates", options, lambda text: None, experiments)
    write_image({"train": train / "c.png", "test": test / "moon.png"}[which], data.camera())
    with pytest.raises(TersenseError, match=r"other settings, data or protocol \(pictures\)"):
        run_table("rates", options, lambda text: None, experiments)


def test_results_of_before_images_were_noted_still_count(folders, tmp_path):
    experiments = TABLES["rates"]()[:1]
    options = quick(folders, tmp_path)
    run_table("rates", options, lambda text: None, experiments)
    path = tmp_path / experiments[0].name / "result.json"
    result = json.loads(path.read_text())
    del result["protocol"]["pictures"]
    path.write_text(json.dumps(result))
    done = []
    run_table("rates", options, done.append, experiments)
    assert done == [f"{experiments[0].label}: done before"]


def test_experiments_side_by_side_give_the_same_figures(folders, tmp_path):
    experiments = TABLES["rates"]()[:2]
    figures = []
    for name, parallel in (("one", 1), ("two", 2)):
        options = quick(folders, tmp_path / name, parallel=parallel)
        result = run_table("rates", options, lambda text: None, experiments)
        means = [r["sets"][folders[1].name]["own geometry"]["mean"] for r in result["rows"]]
        figures.append([mean["psnr"] for mean in means])
    assert figures[0] == pytest.approx(figures[1])


def test_the_command_knows_every_table():
    offered = get_type_hints(reproduce)["table"]
    assert set(get_args(offered)) >= TABLES.keys()


def test_the_recipes_are_the_papers(folders, tmp_path):
    options = Options(folders[0], (folders[1],), tmp_path, device="cpu")
    for rate, experiment in zip(PUBLISHED_RATES, TABLES["rates"](), strict=True):
        config = recipe(experiment, options)
        assert config.sensing.rate == int(1024 * rate) / 1024
        assert config.sensing.density == 0.1
        assert (config.train.epochs, config.train.batch, config.data.samples) == (50, 5000, 5e6)
        assert (config.train.lr, config.train.lr_decay, config.train.lr_decay_epochs) == (
            0.01, 0.6, 5,
        )  # fmt: skip


def test_table_2_as_published_says_how_the_losses_went(folders, tmp_path):
    options = quick(folders, tmp_path)
    result = run_experiment(TABLES["as-published"]()[3], options)
    assert result["protocol"]["config"]["train"]["settle"] is False
    assert result["protocol"]["config"]["reconstructor"]["eps"] == 0.001
    keys = {"trained", "held_out", "trained_running", "held_out_running"}
    assert all(keys <= entry.keys() for entry in result["epochs"])
    assert len(result["epochs"]) == options.epochs


def test_the_sweep_changes_what_its_labels_say(folders, tmp_path):
    labels = [e.label for e in TABLES["sda"]()[1:]]
    options = Options(folders[0], (folders[1],), tmp_path, device="cpu")
    base, *others = (recipe(e, options) for e in TABLES["sda"]())
    for other in others:
        pairs = zip(asdict(base).items(), asdict(other).items(), strict=True)
        changes = [
            key for (_, one), (_, two) in pairs for key in one
            if one[key] != two[key] and key != "out"
        ]  # fmt: skip
        assert sorted(changes) == sorted(re.findall(r"(\w+) = ", labels.pop(0)))


def test_losses_on_training_and_unseen_crops_are_told(folders, tmp_path):
    result = run_experiment(Experiment("plain", "plain"), quick(folders, tmp_path))
    assert 0 < result["training_loss"] < 64
    assert np.isfinite(result["unseen_loss"][folders[1].name])


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["rates", "--epochs", "0"],
        ["rates", "--parallel", "0"],
        ["rates", "--protocol", "mine"],
        ["rates", "--only", "r9"],
    ],
)
def test_impossible_requests_are_one_line(folders, tmp_path, capsys, arguments):
    given = ["--train", str(folders[0]), "--test", str(folders[1]), "-o", str(tmp_path / "out")]
    assert main(["reproduce", *arguments, *given]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interrupted_experiment_is_not_recorded_as_done(folders, tmp_path, monkeypatch):
    experiment = TABLES["rates"]()[0]
    options = quick(folders, tmp_path)
    honest = Loop._run_epoch

    def interrupted(self, train_step, epoch, done, limit, stop):
        return honest(self, train_step, epoch, done, limit, lambda: self.state.step >= 5)

    monkeypatch.setattr(Loop, "_run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, options)
    assert not (tmp_path / experiment.name / "result.json").exists()
    monkeypatch.undo()
    assert run_experiment(experiment, options)["steps"] == 40


def test_a_signal_ends_experiments_side_by_side_too(folders, tmp_path):
    """Those under way stop, those that wait do not begin."""
    out = tmp_path / "out"
    words = ["reproduce", "rates", "--quick", "--parallel", "2", "-o", str(out)]
    given = ["--train", str(folders[0]), "--test", str(folders[1]), "--device", "cpu"]
    command = [sys.executable, "-m", "tersense", *words, *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(out.glob("*/metrics.jsonl")):
            time.sleep(0.02)
        process.terminate()
        assert process.stderr.read() == "tersense: interrupted\n"
    assert process.returncode == 143
    assert not (out / "r0.3-d0.1").exists()
    assert not list(out.rglob(".partial*"))


def test_readouts_are_a_table_of_cameras_beside_linear_estimates(folders, tmp_path, capsys):
    given = ["--test", str(folders[1]), "-m", "flex", "-m", "paper-r25", "-o", str(tmp_path / "o")]
    assert main(["reproduce", "readouts", "--quick", *given]) == 0
    text, printed = (tmp_path / "o/readouts.md").read_text(), capsys.readouterr().out
    assert text in printed
    result = json.loads((tmp_path / "o/readouts.json").read_text())
    labels = [row["label"] for row in result["rows"]]
    assert labels == ["flex", "linear, ρ = 0.8, patterns of flex",
                      "linear, ρ = 0.95, patterns of flex", "paper-r25, not told",
                      "linear, ρ = 0.8, patterns of paper-r25",
                      "linear, ρ = 0.95, patterns of paper-r25"]  # fmt: skip
    for row in result["rows"]:
        figures = row["sets"][folders[1].name]
        assert list(figures) == list(CONDITIONS)
        psnr = {name: figure["mean"]["psnr"] for name, figure in figures.items()}
        assert psnr["exact"] > psnr["σ = 60"] > psnr["σ = 150"] > psnr["σ = 500"]
        assert psnr["exact"] + 0.1 > psnr["8 bits"] > psnr["6 bits"] > psnr["4 bits"]
        assert {figure["rate"] for figure in figures.values()} == {0.25}
        assert figures["6 bits"]["readout"]["bits"] == 6
        for value in psnr.values():
            assert f" {value:.2f} |" in text
    # The rows are those of evaluate.
    flex = load("flex").at_rate(0.25)
    image = read_gray(folders[1] / "camera.png")[:48, :48]
    estimate = np.clip(flex.estimate(flex.sense(image, bits=5)), 0, 255)
    first = result["rows"][0]["sets"][folders[1].name]["5 bits"]["images"][0]
    assert first["psnr"] == pytest.approx(psnr_of(estimate, image), abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["readouts", "-m", "flex"], "--test"),
        (["readouts", "--test", "none", "-m", "flex"], "none does not exist"),
        (["readouts", "--test", "pictures", "-m", "block-r10"], "rate 0.25"),
        (["rates", "--test", "pictures", "-m", "flex"], "--model is for the tables readouts"),
        (["adaptive", "-m", "flex"], "adaptive needs --test DIR"),
    ],
    ids=str,
)
def test_what_readouts_cannot_measure_is_said(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    write_image(tmp_path / "pictures/a.png", data.camera()[:48, :48])
    assert main(["reproduce", *arguments, "-o", "out"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_and_equally_named_test_folders_are_refused_before_training(folders, tmp_path):
    for tests in ((tmp_path / "none",), (folders[1], folders[1])):
        options = Options(folders[0], tests, tmp_path / "out", quick=True)
        with pytest.raises(TersenseError, match=r"does not exist|same name"):
            run_table("rates", options, lambda text: None)
    assert not (tmp_path / "out").exists()
