"""Several processes do what one does: train, evaluate, sense and reconstruct; and fail together.

Processes add numbers in another order than one does, so weights agree to rounding, not to the bit.
Measured here: losses to 5e-7 of their value, every pattern, α to 2e-6, images to 0.01 of a gray
value. Biases before a batch normalization are left out: it takes them away again, their gradient is
nothing but rounding, and Adam makes steps of full length of it.
"""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from skimage import data

import tersense
from processes import kill_worker, start_together, wait_for, wait_until_there
from runs import assert_equal_weights, small_config, unrolled_config, weights_of
from tersense.cli.program import main
from tersense.io.images import write_image
from tersense.runtime._rendezvous import invite, join
from tersense.runtime.distributed import my_part, share_statistics
from tersense.runtime.progress import Quiet
from tersense.training.config import write_toml
from tersense.training.run import Run, train


def tersense_train(tmp_path, config, *options):
    path = tmp_path / f"{config.train.out.rpartition('/')[2]}.toml"
    path.write_text(write_toml(config))
    return ["-m", "tersense", "train", str(path), *options]


def losses_of(run):
    return [json.loads(line).get("loss", 0.0) for line in (run / "metrics.jsonl").open()]


SETTINGS = {
    "the paper's": lambda out: small_config(out, data__cache=f"{out}-cache"),
    # a batch that two cannot halve, a rate drawn in every step, a norm of all gradients, and a loss
    # that is no mean over crops
    "unrolled": lambda out: unrolled_config(
        out,
        train__batch=9,
        reconstructor__nested=True,
        train__loss="log",
        train__epochs=3,
        data__cache=f"{out}-cache",
    ),
}


@pytest.fixture(scope="module", params=SETTINGS)
def one_and_two(request, tmp_path_factory):
    """The same settings, trained by one process and by two."""
    place = tmp_path_factory.mktemp("runs")
    settings = SETTINGS[request.param]
    two = start_together(2, *tersense_train(place, settings(place / "two")))
    train(settings(place / "one"))
    results = wait_for(two)
    assert [code for code, *_ in results] == [0, 0], results
    assert "2 processes" in results[0][2]
    assert results[1][1:] == ("", "")  # the first speaks for all
    return place / "one", place / "two"


def test_two_processes_learn_what_one_learns(one_and_two):
    one, two = one_and_two
    np.testing.assert_allclose(losses_of(two), losses_of(one), rtol=1e-5, atol=1e-5)
    cameras = [tersense.load(run / "model.safetensors") for run in one_and_two]
    np.testing.assert_array_equal(cameras[0].phi, cameras[1].phi)
    alpha = [camera.operator.alpha for camera in cameras]
    torch.testing.assert_close(*alpha, rtol=0, atol=1e-5)
    image = data.camera()[100:164, 100:164]
    images = [camera.capture(image)[0] for camera in cameras]
    np.testing.assert_allclose(*images, atol=0.1)


def test_the_packed_store_is_one_file_for_all(one_and_two):
    cache = one_and_two[1].with_name("two-cache")
    assert sorted(p.name for p in cache.iterdir()) == [".lock", "index.safetensors", "pixels.u8"]


def test_a_rank_that_dies_is_replaced_and_the_weights_are_the_same(tmp_path):
    """With the same number of processes even to the bit."""
    settings = {"train__epochs": 12, "data__samples": 2000}
    undisturbed = small_config(tmp_path / "undisturbed", **settings)
    results = wait_for(start_together(2, *tersense_train(tmp_path, undisturbed)))
    assert [code for code, *_ in results] == [0, 0], results
    config = small_config(tmp_path / "run", **settings)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # fmt: skip
    agent = subprocess.Popen(
        [sys.executable, *torchrun, *tersense_train(tmp_path, config, "--resume")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_there(tmp_path / "run/checkpoint.safetensors", agent)
    kill_worker(agent.pid, rank=1)
    said = agent.communicate(timeout=180)[1]
    assert agent.returncode == 0, said
    assert re.findall(r"continuing at step (\d+) of 120", said)[1:] not in ([], ["0"])
    assert_equal_weights(weights_of(tmp_path / "run"), weights_of(tmp_path / "undisturbed"))


def test_an_attempt_does_not_believe_what_an_earlier_one_left():
    """One store serves two attempts; the second meets under another name, whoever comes first."""
    store = torch.distributed.HashStore()
    for first_comes_late in (False, True):
        with ThreadPoolExecutor() as pool:
            others = [pool.submit(join, store, rank) for rank in (1, 2)] if first_comes_late else []
            first = pool.submit(invite, store, 3)
            others = others or [pool.submit(join, store, rank) for rank in (1, 2)]
            names = {job.result(60) for job in (first, *others)}
        assert len(names) == 1
        assert store.get("tersense").decode() in names


def test_a_rank_that_dies_takes_the_others_down_with_one_line(tmp_path):
    config = small_config(tmp_path / "run", train__epochs=100_000)
    both = start_together(2, *tersense_train(tmp_path, config))
    wait_until_there(tmp_path / "run/checkpoint.safetensors", both[0])
    both[1].kill()
    code, _, said = wait_for(both)[0]
    assert code == 2
    assert "lost the others" in said.splitlines()[-1]
    assert "--resume" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_signal_to_one_stops_all_in_good_order(tmp_path):
    config = small_config(tmp_path / "run", train__epochs=100_000)
    both = start_together(2, *tersense_train(tmp_path, config))
    wait_until_there(tmp_path / "run/metrics.jsonl", both[0])
    both[1].send_signal(signal.SIGTERM)
    results = wait_for(both)
    assert [code for code, *_ in results] == [143, 143], results
    assert "--resume continues it" in results[0][2]
    assert (tmp_path / "run/checkpoint.safetensors").exists()


def test_settings_that_cannot_be_shared_are_told_once(tmp_path):
    config = small_config(tmp_path / "run", data__train="package:skimage/nothing")
    results = wait_for(start_together(2, *tersense_train(tmp_path, config)))
    assert [code for code, *_ in results] == [2, 2]
    assert "no training data" in results[0][2]
    assert results[1][2] == ""
    assert not (tmp_path / "run").exists()


def test_a_batch_with_nothing_for_some_processes_is_refused(tmp_path, monkeypatch, refused):
    monkeypatch.setattr("tersense.runtime.distributed.count", lambda: 3)
    with refused("train.batch = 2", "3 processes"):
        Run(small_config(tmp_path / "run", train__batch=2), Quiet())


DRIVER = """
import json, sys
from tersense.cli.program import main
from tersense.runtime.distributed import process_group
with process_group():
    codes = [main(command) for command in json.loads(sys.argv[1])]
print("codes", codes)
"""


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number, name in enumerate(["camera", "moon", "coins", "page", "text"]):
        part = getattr(data, name)()[20 * number : 20 * number + 64, :48]
        write_image(folder / f"{name}.png", part)
    return folder


def commands_for(photographs, out):
    return [
        ["evaluate", str(photographs), "-m", "paper-r25", "--json", str(out / "scores.json")],
        ["sense", str(photographs), "-m", "paper-r25", "-o", str(out / "measured")],
        ["reconstruct", str(out / "measured"), "-o", str(out / "pictures")],
        ["sense", str(photographs / "moon.png"), "-o", str(out / "moon.tsm")],
        ["evaluate", str(photographs.parent / "nowhere")],
        ["sense", str(photographs.parent / "mixed"), "-o", str(out / "rest")],
        ["models"],
    ]


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(part) for key, part in value.items() if key != "seconds"}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value


def test_folders_shared_by_two_processes_give_what_one_gives(photographs, tmp_path, capfd):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("a", "b", "c"):
        (mixed / f"{name}.png").write_bytes(b"no image")
    write_image(mixed / "d.png", data.camera()[:32, :32])
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    two = start_together(
        2, "-c", DRIVER, json.dumps(commands_for(photographs, tmp_path / "two"))
    )  # fmt: skip
    codes = [main(command) for command in commands_for(photographs, tmp_path / "one")]
    alone = capfd.readouterr()
    assert codes == [0, 0, 0, 0, 2, 1, 0]
    results = wait_for(two)
    for _, printed, _ in results:
        assert "codes [0, 0, 0, 0, 2, 1, 2]" in printed
    scores = [json.loads((tmp_path / n / "scores.json").read_text()) for n in ("one", "two")]
    assert without_seconds(scores[0]) == without_seconds(scores[1])
    files = {
        name: {p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name).rglob("*")
               if p.is_file() and p.suffix != ".json"}
        for name in ("one", "two")
    }  # fmt: skip
    assert len(files["one"]) == 5 + 5 + 1 + 1
    assert files["one"] == files["two"]
    # the table once, the failures once and complete, in order
    assert results[0][1].count("paper-r25 on photographs") == 1
    assert "paper-r25 on" not in results[1][1]
    listed = re.search(r"tersense: 3 of 4 files failed:(\n  .*)+", alone.err)[0]
    assert listed in results[0][2]
    assert "files failed" not in results[1][2]
    assert "without torchrun" in results[0][2]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_cover_a_batch_once(monkeypatch, count):
    covered = []
    for rank in range(count):
        monkeypatch.setattr("tersense.runtime.distributed.count", lambda: count)
        monkeypatch.setattr("tersense.runtime.distributed.rank", lambda rank=rank: rank)
        covered += range(20)[my_part(20)]
    assert covered == list(range(20))


NORM = """
import torch
from torch import nn
from tersense.runtime.distributed import averaging, process_group, rank, share_statistics
torch.manual_seed(0)
network, values = nn.Sequential(nn.BatchNorm1d(5)), torch.randn(7, 5)
plain, pieces = nn.BatchNorm1d(5), [values[:3], values[3:]]
plain.load_state_dict(network[0].state_dict())
for norm in (plain, network[0]):
    norm.momentum = None
with process_group():
    share_statistics(network)
    for _ in range(2):
        mine = pieces[rank()].clone().requires_grad_()
        (network(mine).sigmoid() ** 2).sum().backward()
        whole = values.clone().requires_grad_()
        (plain(whole).sigmoid() ** 2).sum().backward()
        theirs = whole.grad.split([3, 4])[rank()]
        torch.testing.assert_close(mine.grad, theirs)
    torch.testing.assert_close(network[0].running_var, plain.running_var)
    torch.testing.assert_close(network[0].running_mean, plain.running_mean)
    network.eval(), plain.eval()
    torch.testing.assert_close(network(values), plain(values))
"""


def test_batch_normalization_sees_the_whole_batch():
    """Against torch's own on the whole batch: result, gradients and running statistics."""
    results = wait_for(start_together(2, "-c", NORM))
    assert [code for code, *_ in results] == [0, 0], results


def test_alone_nothing_is_replaced():
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    share_statistics(network)
    assert type(network[0]) is torch.nn.BatchNorm1d
