"""Algorithm 1 as it runs: it learns, it repeats, it can be stopped and goes on."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage import data

import tersense
from processes import wait_until_there
from runs import (
    assert_equal_weights,
    small_config,
    train_until,
    unrolled_config,
    weights_of,
)
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.evaluation.protocols import score_image
from tersense.io.images import write_image
from tersense.runtime.progress import Quiet
from tersense.training.config import read_config, write_toml
from tersense.training.network import JointNetwork
from tersense.training.run import Run, open_run, train


def test_training_learns(tmp_path):
    train(small_config(tmp_path / "run", train__epochs=8))
    entries = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    losses = [entry["loss"] for entry in entries]
    assert losses[-1] < 0.5 * losses[0]
    # 64 normalized pixels a crop: guessing the mean would cost about 64.
    assert losses[-1] < 10


def test_the_model_file_is_a_camera(tmp_path):
    train(small_config(tmp_path / "run"))
    imager = tersense.load(tmp_path / "run/model.safetensors")
    assert imager.phi.shape == (16, 8, 8)
    assert ((imager.phi != 0).sum(axis=(1, 2)) == 6).all()
    assert imager.about["steps"] == 60
    assert str(tmp_path) not in json.dumps(imager.about)


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(small_config(tmp_path / name, train__epochs=1, train__seed=seed))
    assert_equal_weights(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert not torch.equal(weights_of(tmp_path / "a")["phi"], weights_of(tmp_path / "c")["phi"])


def test_a_stopped_run_continues_bit_for_bit(tmp_path):
    train(small_config(tmp_path / "whole", train__epochs=4))
    train(small_config(tmp_path / "halves", train__epochs=2))
    train(small_config(tmp_path / "halves", train__epochs=4), resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "halves"))


def test_a_run_stopped_in_the_middle_of_an_epoch_continues_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("tersense.training.stopping._MAX_STEPS", 7)
    train(small_config(tmp_path / "whole"))
    config = small_config(tmp_path / "parts")
    hurried = replace(config, train=replace(config.train, seconds=1e-9))
    train(hurried)
    for _ in range(3):
        train(hurried, resume=True)
    assert Run(config, Quiet()).loop.total_steps == 60
    train(config, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_a_time_limit_leaves_a_model_and_a_checkpoint(tmp_path):
    config = small_config(tmp_path / "run", train__epochs=1000, train__seconds=0.2)
    assert 0 < train(config).about["steps"] < 20_000
    assert (tmp_path / "run/model.safetensors").exists()
    assert (tmp_path / "run/checkpoint.safetensors").exists()


def test_a_nan_stops_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    train(small_config(folder, train__epochs=1))
    before = (folder / "checkpoint.safetensors").read_bytes()
    honest = JointNetwork.forward
    monkeypatch.setattr(JointNetwork, "forward", lambda *a: honest(*a) * float("nan"))
    with pytest.raises(TersenseError, match=r"loss became nan.*checkpoint"):
        train(small_config(folder, train__epochs=2), resume=True)
    assert (folder / "checkpoint.safetensors").read_bytes() == before


def test_another_run_is_not_overwritten(tmp_path):
    train(small_config(tmp_path / "run", train__epochs=1))
    with pytest.raises(TersenseError, match="--resume"):
        train(small_config(tmp_path / "run", train__epochs=1))


def test_resuming_with_other_settings_is_refused(tmp_path):
    train(small_config(tmp_path / "run", train__epochs=1))
    with pytest.raises(TersenseError, match=r"train\.lr was 0\.01"):
        train(small_config(tmp_path / "run", train__lr=0.5), resume=True)


def test_resuming_where_nothing_is_yet_begins(tmp_path):
    """So one command serves for the first start and for every restart."""
    train(small_config(tmp_path / "plain", train__epochs=1))
    train(small_config(tmp_path / "run", train__epochs=1), resume=True)
    assert_equal_weights(weights_of(tmp_path / "plain"), weights_of(tmp_path / "run"))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    train(small_config(tmp_path / "run", train__epochs=1))
    path = tmp_path / "run/checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TersenseError, match="not a checkpoint"):
        train(small_config(tmp_path / "run", train__epochs=2), resume=True)


def test_a_batch_larger_than_an_epoch_is_refused(tmp_path):
    with pytest.raises(TersenseError, match=r"train\.batch"):
        train(small_config(tmp_path / "run", train__batch=5000))
    assert not (tmp_path / "run").exists()


def test_the_run_folder_holds_its_settings(tmp_path):
    config = small_config(tmp_path / "run", train__epochs=1)
    train(config)
    assert read_config(tmp_path / "run/config.toml") == config


def test_a_run_folder_is_enough_to_run_it_again(tmp_path, capsys):
    (tmp_path / "first.toml").write_text(write_toml(small_config(tmp_path / "run")))
    assert main(["train", str(tmp_path / "first.toml")]) == 0
    settings = str(tmp_path / "run/config.toml")
    assert main(["train", settings, "--set", f"train.out={tmp_path / 'again'}"]) == 0
    assert_equal_weights(weights_of(tmp_path / "run"), weights_of(tmp_path / "again"))
    records = [json.loads((tmp_path / n / "run.json").read_text()) for n in ("run", "again")]
    assert records[0]["data"] == records[1]["data"]
    session = records[0]["sessions"][0]
    assert session["tersense"] == tersense.__version__
    assert session["torch"] == torch.__version__
    assert session["processes"] == 1
    assert "command" in session


def two_photographs(folder):
    folder.mkdir()
    write_image(folder / "a.png", data.astronaut())
    write_image(folder / "b.png", data.coffee())
    return folder


def test_a_run_goes_on_with_its_own_images_only(tmp_path, refused):
    """An image of the same name and size, with one other pixel, is another image."""
    folder = two_photographs(tmp_path / "photographs")
    given = {"data__train": str(folder)}
    train(small_config(tmp_path / "run", train__epochs=1, **given))
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    kept = (folder / "b.png").read_bytes()
    changed = data.coffee().copy()
    changed[7, 7] ^= 255
    write_image(folder / "b.png", changed)
    with refused("not those that", "2 then, 2 now"):
        train(small_config(tmp_path / "run", train__epochs=2, **given), resume=True)
    del before[tmp_path / "run/config.toml"]  # it may say more epochs
    assert all(path.read_bytes() == content for path, content in before.items())
    (folder / "b.png").write_bytes(kept)
    train(small_config(tmp_path / "run", train__epochs=2, **given), resume=True)
    sessions = json.loads((tmp_path / "run/run.json").read_text())["sessions"]
    assert [session["step"] for session in sessions] == [0, 20]


def test_going_on_with_another_version_is_told(tmp_path, capsys, refused):
    config = small_config(tmp_path / "run", train__epochs=1)
    train(config)
    path = tmp_path / "run/run.json"
    path.write_text(path.read_text().replace(torch.__version__, "2.11.0"))
    (tmp_path / "config.toml").write_text(write_toml(config))
    assert main(["train", str(tmp_path / "config.toml"), "--resume"]) == 0
    assert "begun with torch 2.11.0" in capsys.readouterr().err
    path.write_text("[]")
    with refused(path, "remove it"):
        train(config, resume=True)


def test_batch_statistics_belong_to_the_frozen_patterns(tmp_path):
    """In evaluation mode, the loss on training crops is that of training mode."""
    run = Run(small_config(tmp_path / "run"), Quiet())
    step = run.loop.make_step()
    locations = run.data.sampler.epoch(0)
    for number in range(20):
        step(locations[number * 200 : (number + 1) * 200])
    crops = run.data.crops(locations[:2000])
    with torch.no_grad():
        training = run.state.network.train()(crops).item()
        run.loop.recompute_statistics()
        evaluation = run.state.network.eval()(crops).item()
    assert evaluation == pytest.approx(training, rel=0.05)


def test_without_settling_the_running_averages_are_kept(tmp_path):
    """As in the authors' code: what a model has for inference is what training left there."""
    run = open_run(small_config(tmp_path / "run", train__settle=False), False, Quiet())
    run.loop.run()
    running = run.state.network.reconstructor.layers[2].running_mean.clone()
    run.finish()
    run.folder.release()
    kept = weights_of(tmp_path / "run")["reconstructor.layers.2.running_mean"]
    assert torch.equal(kept.float(), running.float())
    run.loop.recompute_statistics()
    assert not torch.allclose(run.state.network.reconstructor.layers[2].running_mean, running)


def test_losses_on_trained_and_held_out_crops_are_logged_every_epoch(tmp_path, rng):
    """Gradients are trained on, noise is held out: nobody learns noise that they never saw."""
    for name in "abdeghi":
        down, across = np.mgrid[:32, :32] * rng.uniform(-4, 4, (2, 1, 1))
        write_image(tmp_path / f"{name}.png", np.clip(128 + down + across, 0, 255).astype(np.uint8))
    for name in "cf":  # every third
        write_image(tmp_path / f"{name}.png", rng.integers(0, 256, (32, 32), dtype=np.uint8))
    config = small_config(
        tmp_path / "run", data__train=str(tmp_path), data__held_out=3, train__settle=False
    )
    run = open_run(config, False, Quiet())
    run.loop.run()
    entries = [entry for entry in run.folder.metrics() if "held_out" in entry]
    run.folder.release()
    assert [entry["step"] for entry in entries] == [20, 40, 60]
    assert entries[-1]["trained"] < 0.8 * entries[0]["trained"]
    assert entries[-1]["held_out"] > 10 * entries[-1]["trained"]
    assert entries[-1]["trained_running"] != entries[-1]["trained"]
    before = [buffer.clone() for buffer in run.state.network.buffers()]
    run.loop._compare_losses()
    assert all(map(torch.equal, before, run.state.network.buffers()))


def test_l2_pulls_the_matrices_together(tmp_path):
    for name, l2 in (("without", 0.0), ("with", 1.0)):
        train(small_config(tmp_path / name, train__l2=l2))
    size = {
        name: weights_of(tmp_path / name)["reconstructor.layers.0.weight"].float().norm()
        for name in ("without", "with")
    }
    assert size["with"] < 0.7 * size["without"]


@pytest.mark.parametrize("selection", ["row", "matrix"])
def test_every_selection_trains(tmp_path, selection):
    imager = train(small_config(tmp_path / "run", train__epochs=1, sensing__selection=selection))
    assert imager.patterns.nonzeros == (16 * 6 if selection == "matrix" else 64 * 1)


def test_a_lapped_camera_trains_and_reconstructs(tmp_path):
    config = small_config(tmp_path / "run", sensing__stride=4, data__crop=24)
    imager = train(config)
    assert imager.phi.shape == (4, 8, 8)
    y = imager.sense(torch.randint(0, 256, (30, 41), dtype=torch.uint8).numpy())
    assert imager.reconstruct(y).shape == (30, 41)


def test_random_patterns_stay_as_they_were_drawn(tmp_path):
    config = small_config(tmp_path / "run", sensing__kind="random")
    before = Run(config, Quiet()).state.network.sensor.freeze().phi
    assert (train(config).phi == before).all()


def test_a_learned_scale_is_learned(tmp_path):
    config = small_config(tmp_path / "run", sensing__scale="learned")
    before = Run(config, Quiet()).state.network.sensor.scale.detach()
    assert not torch.equal(train(config).operator.alpha.cpu(), before)


def test_a_dense_camera_can_be_evaluated_and_has_no_model_file(tmp_path):
    camera = train(small_config(tmp_path / "run", sensing__kind="float", train__epochs=8))
    assert not (tmp_path / "run/model.safetensors").exists()
    image = data.camera()[100:164, 100:164]
    assert score_image(camera, "camera", image).psnr > 20


def sda_config(out, **changes):
    config = small_config(out, sensing__kind="float", train__lr=0.003, **changes)
    options = {"corruption": 0.1, "pretrain_steps": 60, "pretrain_lr": 0.01}
    return replace(config, reconstructor={"name": "sda", **options})


def test_the_stacked_autoencoder_learns_and_resumes_bit_for_bit(tmp_path):
    whole = train(sda_config(tmp_path / "whole", train__epochs=10))
    train(sda_config(tmp_path / "halves", train__epochs=4))
    halves = train(sda_config(tmp_path / "halves", train__epochs=10), resume=True)
    assert torch.equal(whole.operator.phi, halves.operator.phi)
    image = data.camera()[100:164, 100:164]
    assert score_image(whole, "camera", image).psnr > 16


def test_pretraining_makes_a_better_start(tmp_path):
    losses = {}
    for steps in (0, 200):
        config = sda_config(tmp_path / str(steps))
        options = {**config.reconstructor, "pretrain_steps": steps}
        run = Run(replace(config, reconstructor=options), Quiet())
        network, pixels = run.state.network, run.state.network.normalization.pixels
        batches = (pixels(crops.float()) for crops in run.data.endless_batches())
        network.reconstructor.prepare(network.sensor.theta, batches)
        with torch.no_grad():
            losses[steps] = run.state.network(
                run.data.crops(run.data.sampler.epoch(0)[:500])
            ).item()
    assert losses[200] < losses[0]


@pytest.mark.parametrize("request_to_stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_the_run_continues(tmp_path, request_to_stop):
    config = small_config(tmp_path / "run", train__epochs=100_000)
    (tmp_path / "config.toml").write_text(write_toml(config))
    command = [sys.executable, "-m", "tersense", "train", str(tmp_path / "config.toml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until_there(tmp_path / "run/metrics.jsonl", process)
    process.send_signal(request_to_stop)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + request_to_stop
    assert "asked to stop" in said.splitlines()[-1]
    assert "--resume" in said.splitlines()[-1]
    run = Run(config, Quiet())
    run.state.load(run.folder.checkpoint)
    assert run.state.step == tersense.load(tmp_path / "run/model.safetensors").about["steps"]


def test_training_leaves_the_choice_of_convolutions_as_it_was(tmp_path):
    for before in (False, True):
        torch.backends.cudnn.benchmark = before
        train(small_config(tmp_path / str(before), train__epochs=1))
        assert torch.backends.cudnn.benchmark is before
    torch.backends.cudnn.benchmark = False


def test_the_logged_loss_is_the_mean_of_the_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr("tersense.training.stopping._MAX_STEPS", 7)
    train(small_config(tmp_path / "looks", train__epochs=1))
    monkeypatch.setattr("tersense.training.stopping._MAX_STEPS", 1000)
    train(small_config(tmp_path / "once", train__epochs=1))
    losses = [
        json.loads((tmp_path / n / "metrics.jsonl").read_text())["loss"] for n in ("looks", "once")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_metrics_since_the_checkpoint_are_forgotten_when_a_killed_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    train(small_config(folder, train__epochs=2))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 999, "loss": 1.0}\n{"step": 10')  # what a kill -9 may leave
    train(small_config(folder, train__epochs=3), resume=True)
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").open()]
    assert steps == [20, 40, 60]


def test_a_time_limit_that_is_used_up_trains_no_further(tmp_path):
    config = small_config(tmp_path / "run", train__epochs=1000, train__seconds=0.1)
    before = train(config).about["steps"]
    assert train(config, resume=True).about["steps"] == before


def test_weights_beyond_repair_are_not_saved(tmp_path):
    with pytest.raises(TersenseError, match=r"lower train\.lr"):
        train(small_config(tmp_path / "run", train__lr=1e38))
    assert not (tmp_path / "run/checkpoint.safetensors").exists()


def test_measurements_are_exact_in_half_precision_too(tmp_path, monkeypatch):
    network = JointNetwork(unrolled_config(tmp_path), 120.0, 60.0)
    seen = []
    monkeypatch.setattr(network.reconstructor, "forward", lambda y, *_: seen.append(y) or y.sum())
    monkeypatch.setattr(network, "loss", lambda x, estimate: estimate)
    crops = torch.from_numpy(data.camera()[None, 100:132, 100:132])
    with torch.autocast("cpu", torch.bfloat16):
        network(crops)
    phi, _ = network.sensor()
    kernel = phi.double().detach()[:, None]
    exact = torch.nn.functional.conv2d((crops[:, None].double() - 120) / 60, kernel, stride=8)
    torch.testing.assert_close(seen[0].double(), exact, rtol=0, atol=1e-4)


def test_frozen_patterns_stay_while_the_network_learns(tmp_path):
    early = train(small_config(tmp_path / "early", train__epochs=1)).phi
    camera = train(small_config(tmp_path / "run", train__epochs=3, train__freeze_epochs=1))
    assert (camera.phi == early).all()
    free = train(small_config(tmp_path / "free", train__epochs=3)).phi
    assert (free != early).any()


@pytest.mark.parametrize("stride", [8, 4])
def test_the_unrolled_network_learns(tmp_path, stride):
    train(unrolled_config(tmp_path / "run", sensing__stride=stride, train__epochs=8))
    entries = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    losses = [entry["loss"] for entry in entries]
    assert losses[-1] < 0.8 * losses[0]


def test_a_stopped_unrolled_run_continues_bit_for_bit(tmp_path):
    train(unrolled_config(tmp_path / "whole"))
    config = unrolled_config(tmp_path / "parts", train__checkpoint_epochs=1)
    train_until(config, 50)  # in the middle of the third epoch
    train(config, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_patterns_that_will_not_be_frozen_are_told(tmp_path, capsys):
    settings = ["train.epochs=1", "train.freeze_epochs=2", "data.samples=80", "data.crop=8"]
    (tmp_path / "c.toml").write_text(write_toml(unrolled_config(tmp_path / "run")))
    given = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", str(tmp_path / "c.toml"), *given]) == 0
    assert "not be frozen: train.freeze_epochs = 2 is not below train.epochs = 1" in (
        " ".join(capsys.readouterr().err.split())
    )


def test_frozen_patterns_stay_while_the_network_goes_on(tmp_path):
    run = open_run(unrolled_config(tmp_path / "run", train__freeze_epochs=1), False, Quiet())
    learn, seen = run.loop.make_step(), []

    def watching(locations):
        loss = learn(locations)
        seen.append(
            (run.state.network.sensor.freeze().hash, run.state.network.reconstructor.damping.item())
        )
        return loss

    run.loop.make_step = lambda: watching
    run.loop.run()
    patterns, damping = zip(*seen, strict=True)
    assert len(set(patterns[:20])) > 1
    assert len(set(patterns[20:])) == 1
    assert len(set(damping[20:])) > 30
