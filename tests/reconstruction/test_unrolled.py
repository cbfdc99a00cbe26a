"""The unrolled reconstructor: any camera, any size, gradients, tiles, rates."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage import data
from torch.utils.flop_counter import FlopCounterMode

import tersense
from tersense.errors import TersenseError
from tersense.models import imager as imager_module
from tersense.models.imager import Imager
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import nested_order, random_patterns
from tersense.sensing.ternary import TernarySensor
from tersense.training.config import build_config, read_config
from tersense.training.network import JointNetwork
from tersense.training.network import _some_first_rows as some_first_rows

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = UnrolledOptions(phases=2, channels=8)


def camera(window, stride, m, density=0.2):
    phi = random_patterns(m, window, density).phi.astype(np.float32)
    return SensingOperator(torch.from_numpy(phi), stride)


def small_imager(window=8, stride=8, m=16, nested=False):
    patterns = random_patterns(m, window, 0.2)
    patterns = type(patterns)(patterns.phi, stride)
    options = UnrolledOptions(phases=2, channels=8, nested=nested)
    network = UnrolledReconstructor(Geometry(window, stride), m, options)
    for weights in network.parameters():  # a fresh network changes nothing: make it do something
        torch.nn.init.normal_(weights, std=0.05)
    return Imager("small", patterns, torch.ones(m), 120.0, 60.0, network)


@pytest.mark.parametrize(("window", "stride", "m"), [(8, 8, 16), (8, 4, 5), (8, 2, 2), (9, 4, 3)])
@pytest.mark.parametrize("size", [(32, 32), (33, 26), (5, 70)])
def test_images_of_any_size_and_camera_come_back_in_their_size(window, stride, m, size):
    torch.manual_seed(0)
    operator = camera(window, stride, m)
    network = UnrolledReconstructor(operator.geometry, m, SMALL).eval()
    y = operator.forward(torch.randn(2, *size))
    with torch.no_grad():
        assert network(y, operator, size).shape == (2, *size)


@pytest.mark.parametrize(
    ("window", "stride", "m", "overlaps"),
    [(16, 16, 64, 2), (16, 8, 16, 1), (16, 8, 16, 2), (16, 8, 32, 2)],
)
def test_a_fresh_network_agrees_with_the_measurements(window, stride, m, overlaps):
    torch.manual_seed(0)
    operator = camera(window, stride, m)
    options = UnrolledOptions(channels=8, overlaps=overlaps)
    network = UnrolledReconstructor(operator.geometry, m, options).eval()
    y = operator.forward(torch.randn(1, 96, 96))
    with torch.no_grad():
        again = operator.forward(network(y, operator, (96, 96)))
    assert (again - y).norm() / y.norm() < 0.02


def test_the_patterns_learn_through_the_network():
    torch.manual_seed(0)
    sensor = TernarySensor(8, 4, 0.25, 0.2)
    network = UnrolledReconstructor(Geometry(8, 4), len(sensor.theta), SMALL)
    x = torch.randn(2, 24, 24)
    phi, alpha = sensor()
    operator = SensingOperator(phi, 4, alpha)
    (network(operator.forward(x), operator, (24, 24)) - x).square().sum().backward()
    assert sensor.theta.grad is not None
    assert (sensor.theta.grad != 0).float().mean() > 0.99  # straight through, unmasked


def test_the_network_is_as_small_as_promised():
    geometry = Geometry(32, 32)
    network = UnrolledReconstructor(geometry, 256, UnrolledOptions()).eval()
    operator = camera(32, 32, 256, 0.05)
    y = operator.forward(torch.zeros(1, 64, 64))
    with torch.no_grad():
        network(y, operator, (64, 64))  # the inverse is found once
        with FlopCounterMode(display=False) as counter:
            network(y, operator, (64, 64))
    assert counter.get_total_flops() / 2 / 64**2 <= 450_000
    assert sum(w.numel() for w in network.parameters()) <= 4_000_000


def test_the_network_for_small_computers_is_as_small_as_promised():
    """Of the network alone: the data step's additions depend on the rate, and are few."""
    config = read_config(CONFIGS / "fast.toml")
    options = {key: value for key, value in config.reconstructor.items() if key != "name"}
    operator = camera(8, 8, 1)
    network = UnrolledReconstructor(operator.geometry, 1, UnrolledOptions(**options)).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 1, 8, 8), operator, (64, 64))
    assert 30_000 <= counter.get_total_flops() / 2 / 64**2 <= 60_000


def test_tiles_give_the_image_of_one_piece(monkeypatch):
    imager = tersense.load("block-r25")
    image = data.camera()[:320, :288]
    y = imager.sense(image)
    whole = imager.estimate(y)
    monkeypatch.setattr(imager_module, "TILE_PIXELS", 128 * 128)
    difference = np.abs(imager.estimate(y) - whole)
    assert difference.max() < 1.0  # of 255; the phases reach farther than the halo
    assert difference.mean() < 0.01


def test_bfloat16_is_close_to_float32():
    image = data.camera()[:128, :128]
    y = tersense.load("block-r25").sense(image)
    full = tersense.load("block-r25").estimate(y)
    half = tersense.load("block-r25", precision="bfloat16").estimate(y)
    assert 0 < np.abs(full - half).mean() < 0.5
    with pytest.raises(TersenseError, match="no precision is called 'int4'"):
        tersense.load("block-r25", precision="int4")


@pytest.mark.parametrize(("able", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_precision_follows_the_processor_where_it_may(monkeypatch, able, precision):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: able)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert tersense.load("block-r25", precision="auto").precision == precision
    assert tersense.load("block-r25").precision == "float32"


def test_a_nested_camera_works_at_lower_rates_and_others_do_not():
    image = data.camera()[:40, :40]
    nested = small_imager(nested=True).at_rate(0.1)
    assert nested.rows == 6
    y = nested.sense(image)
    whole = small_imager(nested=True)  # finds out the rate from the measurements
    whole.camera.reconstructor = nested.reconstructor
    np.testing.assert_array_equal(whole.reconstruct(y), nested.reconstruct(y))
    with pytest.raises(TersenseError, match=r"works at rate 0\.25 only"):
        small_imager().at_rate(0.1)


def test_patterns_that_are_all_zero_are_as_good_as_absent():
    """Training a nested camera blanks patterns; using it leaves them out."""
    torch.manual_seed(0)
    operator = camera(8, 8, 16)
    network = UnrolledReconstructor(operator.geometry, 16, UnrolledOptions(2, 8, True)).eval()
    torch.nn.init.normal_(network.phases[0].exit.weight)
    torch.nn.init.normal_(network.phases[0].by_rate)
    first = operator.phi.clone()
    first[6:] = 0
    blank, short = SensingOperator(first, 8), SensingOperator(operator.phi[:6], 8)
    x = torch.randn(1, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(
            network(blank.forward(x), blank, (32, 32)).numpy(),
            network(short.forward(x), short, (32, 32)).numpy(),
            atol=1e-4,
        )


def test_random_rates_take_first_patterns_low_and_high():
    torch.manual_seed(0)
    masks = [some_first_rows(torch.ones(512, 1, 1), 0.02)[:, 0, 0] for _ in range(300)]
    counts = [int(mask.sum()) for mask in masks]
    assert all((mask[:count] == 1).all() for mask, count in zip(masks, counts, strict=True))
    assert min(counts) < 15
    assert max(counts) > 450
    assert max(counts) <= 512


def settings(**sensing):
    return build_config(
        {
            "sensing": {"window": 8, "stride": 8, "density": 0.2, **sensing},
            "reconstructor": {"name": "unrolled", "phases": 2, "channels": 8},
        }
    )


def test_a_training_starts_from_a_model():
    trained = small_imager()
    network = JointNetwork(settings(rate=0.25), 120.0, 60.0)
    network.start_from(trained)
    np.testing.assert_array_equal(network.sensor.freeze().phi, trained.phi)
    for key, value in trained.reconstructor.state_dict().items():
        assert torch.equal(network.reconstructor.state_dict()[key], value), key


@pytest.mark.parametrize(("rate", "stride"), [(0.125, 8), (0.5, 8), (0.25, 4)])
def test_a_training_for_another_camera_starts_with_as_many_patterns_as_it_can(rate, stride):
    trained = small_imager()
    network = JointNetwork(settings(rate=rate, stride=stride), 120.0, 60.0)
    network.start_from(trained)
    phi = network.sensor.freeze().phi
    count = min(len(phi), 16)
    np.testing.assert_array_equal(phi[:count], trained.phi[:count])


def test_a_larger_window_starts_with_the_patterns_in_its_middle():
    trained = small_imager()
    network = JointNetwork(settings(rate=0.25, window=12, density=0.2 * 64 / 144), 120.0, 60.0)
    network.start_from(trained)
    phi = network.sensor.freeze().phi
    np.testing.assert_array_equal(phi[:, 2:10, 2:10], trained.phi)
    assert np.count_nonzero(phi) == np.count_nonzero(trained.phi)


def test_a_nested_camera_starts_with_the_most_telling_patterns():
    trained = small_imager()
    nested = settings(rate=0.25)
    nested.reconstructor["nested"] = True
    network = JointNetwork(nested, 120.0, 60.0)
    network.start_from(trained)
    order = nested_order(trained.patterns)
    assert list(order) != sorted(order)
    np.testing.assert_array_equal(network.sensor.freeze().phi, trained.phi[order])


def test_dense_sensing_starts_as_the_ternary_camera():
    trained = small_imager()
    network = JointNetwork(settings(rate=0.25, kind="float"), 120.0, 60.0)
    network.start_from(trained)
    image = torch.rand(24, 24)
    alpha = trained.operator.alpha[:, None, None]
    phi, ones = network.sensor()
    dense = SensingOperator(phi, 8, ones).forward(image)
    torch.testing.assert_close(dense, alpha * trained.operator.forward(image))


def test_compiled_phases_give_the_same_gradients(monkeypatch):
    compile_traced = functools.partial(torch.compile, backend="aot_eager")  # no C++ compiler
    monkeypatch.setattr(torch, "compile", compile_traced)
    torch.manual_seed(5)
    config = settings(rate=0.25)
    networks = [JointNetwork(config, 120.0, 60.0) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    assert networks[1].reconstructor.compile_parts()
    pixels = torch.randint(0, 256, (2, 16, 16), dtype=torch.uint8)
    for network in networks:
        network.train()(pixels).backward()
    for (name, plain), compiled in zip(
        networks[0].named_parameters(), networks[1].parameters(), strict=True
    ):
        torch.testing.assert_close(compiled.grad, plain.grad, msg=name, rtol=1e-3, atol=1e-5)


def test_a_training_does_not_start_from_another_network():
    config = build_config(
        {"sensing": {"window": 8, "stride": 8}, "reconstructor": {"name": "unrolled"}}
    )
    with pytest.raises(TersenseError, match="weights do not fit unrolled with"):
        JointNetwork(config, 120.0, 60.0).start_from(small_imager())


@pytest.mark.parametrize("wrong", [{"phases": 0}, {"channels": 5000}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(TersenseError, match="must be at least 1 and at most"):
        UnrolledOptions(**wrong)


@pytest.mark.parametrize("overlaps", [0, 4])
def test_measurements_correct_each_other_one_to_three_windows_away(overlaps):
    with pytest.raises(TersenseError, match=rf"at least 1 and at most 3, got {overlaps}"):
        UnrolledOptions(overlaps=overlaps)
