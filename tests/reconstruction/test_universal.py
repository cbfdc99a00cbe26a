"""The universal network: any count in any window, any error, and told of both."""

import numpy as np
import pytest
import torch
from skimage import data

from runs import assert_equal_weights, train_until, unrolled_config, weights_of
from tersense.errors import TersenseError
from tersense.measurements import Readout
from tersense.models.imager import Imager
from tersense.reconstruction.base import Normalization
from tersense.reconstruction.conditioning import spread
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.gram import whitening
from tersense.sensing.operator import SensingOperator, SparseOperator
from tersense.sensing.patterns import Patterns, random_patterns
from tersense.training.config import ReadoutConfig, build_config
from tersense.training.draws import draw_counts, draw_errors, draw_readout
from tersense.training.run import train

ROWS = 20


def camera(stride=8):
    phi = random_patterns(ROWS, 8, 0.2).phi.astype(np.float32)
    return SensingOperator(torch.from_numpy(phi), stride)


def network(phases=2, seed=0, channels=8, **options):
    torch.manual_seed(seed)
    made = UnrolledReconstructor(
        camera().geometry, ROWS, UnrolledOptions(phases, channels, universal=True, **options)
    )
    for weights in made.parameters():  # a fresh network changes nothing: make it do something
        torch.nn.init.normal_(weights, std=0.05)
    return made.eval()


@pytest.fixture
def images():
    return torch.from_numpy(data.camera()[200:232, 200:240].astype(np.float32))[None] / 60 - 2


@pytest.mark.parametrize("count", [1, 7, 13, ROWS])
def test_the_whitening_of_the_first_rows_is_the_first_part_of_the_whitening(count):
    """L⁻ᵀML⁻¹ is (Φ_mΦ_mᵀ + λI)⁻¹ for every m, as numpy inverts it."""
    operator = camera()
    factor = whitening(operator, 0.01).double().numpy()
    phi = operator.phi.flatten(1).double().numpy()
    energy = (phi**2).sum(1).max()
    wanted = np.linalg.inv(phi[:count] @ phi[:count].T + 0.01 * energy * np.eye(count))
    kept = factor[:count]
    found = (kept.T @ kept)[:count, :count]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("count", [3, 11])
def test_equal_counts_are_the_camera_of_that_rate(images, count):
    operator, whole = network(), camera()
    y = whole.forward(images)
    lower = SensingOperator(whole.phi[:count], 8)
    with torch.no_grad():
        counted = operator(y, whole, (32, 40), counts=torch.full((1, 4, 5), count))
        plain = operator(y[:, :count], lower, (32, 40))
    torch.testing.assert_close(counted, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(32, 40), (27, 34), (5, 6)])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_finished_camera_saves_time_not_quality(images, size, noisy):
    """Inference leaves out zeros and rows that no window has, and changes features in place."""
    torch.manual_seed(1)
    phi = torch.from_numpy(random_patterns(80, 8, 0.05).phi.astype(np.float32))
    dense, finished = SensingOperator(phi, 8), SparseOperator(phi, 8)
    net = UnrolledReconstructor(dense.geometry, 80, UnrolledOptions(2, 8, universal=True)).eval()
    for weights in net.parameters():
        torch.nn.init.normal_(weights, std=0.05)
    y = dense.forward(images[:, : size[0], : size[1]])
    counts = torch.randint(33, 64, (1, *y.shape[-2:]))
    deviation = torch.rand(1, 80, 1, 1) if noisy else None
    with torch.no_grad():
        expected = net(y, dense, size, deviation, counts)
    with torch.inference_mode():
        found = net(y, finished, size, deviation, counts)
        assert len(finished.for_counts(counts).phi) == 64
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [8, 4])
def test_training_takes_the_steps_that_the_finished_network_takes(images, stride):
    net, found = network(), []
    for training in (True, False):
        phi = camera(stride).phi.requires_grad_()
        operator = SensingOperator(phi, stride)
        operator.whitening = whitening(operator, 0.01).detach()
        size = images.shape[-2:]
        y = operator.forward(images)
        counts = torch.arange(y[:, 0].numel()).view(y[:, 0].shape) % ROWS + 1
        result = net.train(training)(y, operator, size, None, counts)
        (slope,) = torch.autograd.grad(result.square().mean(), phi)
        found.append((result, slope))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-6)


def test_what_a_window_was_not_measured_with_has_no_influence(images):
    made, operator = network(), camera()
    counts = torch.randint(1, ROWS + 1, (1, 4, 5), generator=torch.Generator().manual_seed(1))
    y = operator.forward(images)
    unmeasured = torch.arange(ROWS)[:, None, None] >= counts[:, None]
    with torch.no_grad():
        clean = made(y.masked_fill(unmeasured, 0), operator, (32, 40), counts=counts)
        noise = made(y.masked_fill(unmeasured, 1e3), operator, (32, 40), counts=counts)
        others = made(y, operator, (32, 40), counts=counts.flip(1))
    torch.testing.assert_close(clean, noise)
    assert (clean - others).abs().max() > 0.01


def test_errors_may_be_one_for_all_or_one_for_each_measurement(images):
    made, operator = network(), camera(4)
    y = operator.forward(images)
    with torch.no_grad():
        exact = made(y, operator, (32, 40))
        nothing = made(y, operator, (32, 40), y.new_zeros(1, 1, 1, 1))
        one = made(y, operator, (32, 40), y.new_full((1, 1, 1, 1), 0.7))
        each = made(y, operator, (32, 40), torch.full_like(y, 0.7))
    torch.testing.assert_close(exact, nothing)
    torch.testing.assert_close(one, each)
    assert (exact - one).abs().max() > 0.01


@pytest.mark.parametrize(("phases", "channels"), [(5, 8), (2, 12), (3, 20)])
def test_a_larger_network_begins_as_the_one_it_comes_from(images, phases, channels):
    small, large, operator = network(2), network(phases, 1, channels=channels), camera()
    large.start_from(small)
    y = operator.forward(images)
    counts = torch.randint(1, ROWS, (1, 4, 5), generator=torch.Generator().manual_seed(0))
    told = torch.full((1, 1, 1, 1), 0.4), counts
    with torch.no_grad():
        wanted = small(y, operator, (32, 40), *told)
        torch.testing.assert_close(large(y, operator, (32, 40), *told), wanted)
    with pytest.raises(RuntimeError, match=r"it has \d phases|do not fit"):
        small.start_from(large)


def test_new_channels_learn(images):
    """Nobody listens to them at first, but those who will have a gradient."""
    large, operator = network(2, 1, channels=12), camera()
    large.start_from(network(2))
    large.train()(operator.forward(images), operator, (32, 40)).square().mean().backward()
    unheard = large.phases[1].before.weight
    assert not unheard[:8, 8:].any()
    assert unheard.grad[:8, 8:].abs().max() > 0


@pytest.mark.parametrize("stride", [1, 2, 2.5, 4, 16])
@pytest.mark.parametrize("size", [(8, 12), (7, 11)])
def test_a_map_has_the_value_of_the_window_that_each_place_lies_in(stride, size):
    grid = tuple(int(-(-side // stride)) for side in size)
    windows = torch.arange(2 * grid[0] * grid[1]).view(2, *grid)
    found = spread(windows, size, stride).expand(2, *size)
    for i, j in np.ndindex(*size):
        assert torch.equal(found[:, i, j], windows[:, int(i / stride), int(j / stride)])


def test_noise_is_told_of_the_rows_that_were_measured(images):
    """Errors of rows beyond a window's count are nobody's."""
    made, operator = network(), camera()
    y = operator.forward(images)
    counts = torch.full((1, 4, 5), 9)
    y[:, 9:] = 0
    errors = torch.rand(1, ROWS, 1, 1, generator=torch.Generator().manual_seed(0))
    other = errors.clone()
    other[:, 9:] = 7.0
    with torch.no_grad():
        told, told_other = (made(y, operator, (32, 40), e, counts) for e in (errors, other))
        first = SensingOperator(operator.phi[:9], 8)
        alone = made(y[:, :9], first, (32, 40), errors[:, :9])
    torch.testing.assert_close(told, told_other)
    torch.testing.assert_close(told, alone, atol=1e-4, rtol=1e-4)


def test_gates_hear_of_each_window():
    """One window more, with the same measurements: only its own surroundings change."""
    made, operator = network(1), camera()
    for weights in made.phases[0].gates.parameters():
        torch.nn.init.normal_(weights)
    y = torch.zeros(1, ROWS, 4, 8)
    counts = torch.full((1, 4, 8), 9)
    more = counts.clone()
    more[0, 0, 0] = 10  # its y is zero, so that the data step is the same
    with torch.no_grad():
        change = made(y, operator, (32, 64), counts=more) - made(
            y, operator, (32, 64), counts=counts
        )
    assert change[0, :8, :8].abs().max() > 1e-6
    assert not change[0, :, 40:].any()


def test_a_network_that_was_never_told_begins_without_hearing(images):
    operator = camera()
    made = network()
    plain = UnrolledReconstructor(operator.geometry, ROWS, UnrolledOptions(2, 8, nested=True))
    fresh = UnrolledReconstructor(operator.geometry, ROWS, UnrolledOptions(2, 8, universal=True))
    fresh.start_from(plain)
    assert all(not phase.by_noise.any() for phase in fresh.phases)
    with pytest.raises(RuntimeError):
        plain.start_from(made)


def test_tiles_and_noise_go_through_an_imager():
    patterns = random_patterns(ROWS, 8, 0.2)
    imager = Imager("u", Patterns(patterns.phi, 8), torch.ones(ROWS), 120.0, 60.0, network())
    image = data.camera()[:64, :64]
    exact = imager.estimate(imager.sense(image))
    noisy = imager.estimate(imager.sense(image, noise=200.0))
    assert exact.shape == noisy.shape == (64, 64)
    assert imager.at_rate(0.1).rows == 6


@pytest.mark.parametrize("counts", [None, torch.tensor([[[20, 3, 9, 14, 1]]]).expand(1, 4, 5)])
def test_a_closing_step_makes_the_image_agree_with_what_is_exact(images, counts):
    operator, size = camera(), (32, 40)
    plain, closing = network(), network(closing=True)
    closing.start_from(plain)
    torch.nn.init.zeros_(closing.closing.length)
    y = operator.forward(images)
    measured = 1 if counts is None else torch.arange(ROWS)[:, None, None] < counts[:, None]
    before = plain(y, operator, size, None, counts)
    torch.testing.assert_close(closing(y, operator, size, None, counts), before)  # begins as none

    torch.nn.init.ones_(closing.closing.length)
    torch.nn.init.constant_(closing.closing.by_noise, -1.2)
    after = closing(y, operator, size, None, counts)
    off = [(measured * (y - operator.forward(x))).norm() for x in (before, after)]
    assert off[1] < 0.1 * off[0]
    noisy = [net(y, operator, size, torch.tensor(1.0).view(1, 1, 1, 1), counts)
             for net in (plain, closing)]  # fmt: skip
    moved = (noisy[1] - noisy[0]).norm() / (after - before).norm()
    assert moved < 0.1


def test_only_a_universal_network_has_a_closing_step_or_corrections():
    with pytest.raises(TersenseError, match=r"closing must be false unless .*universal is true"):
        UnrolledOptions(closing=True)
    with pytest.raises(TersenseError, match=r"corrections must be 0 unless .*universal is true"):
        UnrolledOptions(corrections=1)


@pytest.mark.parametrize("counts", [None, torch.tensor([[[9, 3, 6, 12, 1]]]).repeat(1, 8, 2)])
def test_corrections_lead_to_the_smallest_image_that_agrees_with_all_windows(images, counts):
    """Windows overlap four times; numpy solves for all of them together."""
    operator, size = camera(4), (32, 40)
    y = operator.forward(images)
    measured = torch.ones(1, ROWS, 8, 10, dtype=torch.bool)
    if counts is not None:
        measured = torch.arange(ROWS)[:, None, None] < counts[:, None]
    pixels = torch.eye(32 * 40).view(-1, *size)
    matrix = operator.forward(pixels)[:, measured[0]].T.double().numpy()
    wanted = np.linalg.lstsq(matrix, y[measured].double().numpy(), rcond=1e-4)[0].reshape(size)

    def distance(corrections):
        net = network(phases=1, corrections=corrections)
        for weights in net.parameters():  # nothing but the data step
            torch.nn.init.zeros_(weights)
        torch.nn.init.ones_(net.phases[0].step)
        torch.nn.init.constant_(net.phases[0].corrections, 0.4)  # several windows share a pixel
        with torch.no_grad():
            found = net(y, operator, size, None, counts)[0].double().numpy()
        return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)

    distances = [distance(corrections) for corrections in (0, 1, 2, 4, 8)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0] / 2


# Training


def test_counts_are_drawn_between_the_bounds_and_follow_the_contrast():
    torch.manual_seed(0)
    x = torch.randn(400, 32, 32) * 0.01
    x[:, :, 16:] *= 100  # flat on the left, texture on the right
    counts = draw_counts(x, 8, 64, 0.05)
    assert counts.shape == (400, 4, 4)
    assert counts.min() >= 1
    assert counts.max() <= 64
    uniform = (counts.flatten(1).amax(1) == counts.flatten(1).amin(1)).float().mean()
    assert 0.2 < uniform < 0.6  # some crops have one count
    left, right = counts[:, :, :2].float().mean(), counts[:, :, 2:].float().mean()
    assert right > 1.3 * left
    base = counts[:, 0, 0].float()
    assert base.quantile(0.1) < 5
    assert base.quantile(0.9) > 15


def test_a_skew_of_two_draws_every_second_crop_from_the_highest_quarter_of_the_logarithms():
    torch.manual_seed(0)
    x = torch.zeros(4000, 8, 8)  # one window in each, all alike
    quarter = round(1000 * 0.05**0.25)
    for skew, share in ((1.0, 0.25), (2.0, 0.5)):
        counts = draw_counts(x, 8, 1000, 0.05, skew)
        # The spread of some crops moves a few of them across the border.
        assert (counts > quarter).float().mean() == pytest.approx(share, abs=0.04)


def test_errors_are_drawn_as_they_are_told():
    torch.manual_seed(0)
    normalization = Normalization(100.0, 50.0)
    y = torch.randn(900, 30, 4, 4) * torch.logspace(0, 2, 30)[:, None, None]  # rows differ
    settings = ReadoutConfig(share=0.75, lowest=4.0, highest=400.0)
    ones = torch.randn(30, 4, 4) * 5
    read, told = draw_errors(y, normalization, ones, settings)
    error = (read - y) * 50
    said = told[:, :, 0, 0] * 50
    exact = (said == 0).all(dim=1)
    assert 0.2 < exact.float().mean() < 0.3
    assert not error[exact].any()
    own = (said.std(dim=1) > 1e-3) & ~exact  # a deviation for each row
    assert 0.2 < own.float().mean() < 0.3
    one = said[~exact & ~own][:, 0]
    assert one.min() >= 4
    assert one.max() <= 400
    assert one.log().mean().item() == pytest.approx(np.log(40), abs=0.15)
    found = error[~exact].square().mean(dim=(2, 3)).sqrt()
    assert (found / said[~exact]).mean().item() == pytest.approx(1, abs=0.06)
    # What is not noise are values of a converter: whole steps of the raw sums.
    units = (read * 50 + 100 * ones)[~exact] / (said[~exact] * 12**0.5)[:, :, None, None]
    whole = ((units - units.round()).abs() < 0.02).flatten(1).float().mean(dim=1) > 0.99
    assert 0.58 < whole.float().mean() < 0.75
    assert whole[own[~exact]].all()


def sensed_patches(crops):
    """Return flat crops of many brightnesses (N, 8, 8) and a camera of four patterns."""
    phi = torch.zeros(4, 8, 8)
    phi[0], phi[1, 0], phi[2, :2, :2], phi[2, 2:4, :2], phi[3, 5, 5] = 1, 1, 1, -1, -1
    pixels = torch.linspace(20, 230, crops)[:, None, None].expand(-1, 8, 8).contiguous()
    return pixels, SensingOperator(phi, 8)


def test_photons_are_counted_as_a_readout_counts_them():
    torch.manual_seed(0)
    normalization, crops = Normalization(100.0, 50.0), 4000
    pixels, operator = sensed_patches(crops)
    x = normalization.pixels(pixels)
    settings = ReadoutConfig(share=1.0, lowest=1e-3, highest=1e-3, dimmest=0.5, brightest=0.5)
    y = operator.forward(x)
    read, told = draw_readout(x, y, operator, normalization, settings)
    raw = (read * 50 + 100 * operator.sense_ones((8, 8)))[..., 0, 0]
    # Differences of counts: whole photons, but for the noise, which is next to none here.
    assert (raw * 0.5 - (raw * 0.5).round()).abs().max() < 0.02
    exact = operator.forward(pixels)
    light = operator.phi.abs().sum(dim=(1, 2)) * pixels[:, :1, 0]
    reference = Readout(photons=0.5)
    for row in range(4):
        expected = reference.deviation_at(light[:, row].numpy())
        found = (raw[:, row] - exact[:, row, 0, 0]).numpy()
        assert np.mean(found / expected) == pytest.approx(0, abs=0.06)
        assert np.std(found / expected) == pytest.approx(1, abs=0.05)
        # One photon more than none is the least doubt.
        said = (told[:, row, 0, 0] * 50).numpy()
        assert said == pytest.approx(np.sqrt(expected**2 + 1 / 0.5**2), rel=0.25)


def test_light_and_noise_differ_from_crop_to_crop():
    torch.manual_seed(0)
    normalization = Normalization(100.0, 50.0)
    pixels, operator = sensed_patches(3000)
    x = normalization.pixels(pixels)
    settings = ReadoutConfig(share=0.8, lowest=1e4, highest=1e4, dimmest=0.01, brightest=10.0)
    y = operator.forward(x)
    read, told = draw_readout(x, y, operator, normalization, settings)
    exact = (told == 0).all(dim=1).flatten()
    assert exact.float().mean().item() == pytest.approx(0.2, abs=0.03)
    assert torch.equal(read[exact], y[exact])
    noisy = (told * 50 > 1e4 * 0.999).all(dim=1).flatten()
    assert noisy.float().mean().item() == pytest.approx(0.4, abs=0.03)
    error = ((read - y) * 50)[noisy]
    assert error.std().item() == pytest.approx(1e4, rel=0.05)
    said = (told * 50)[~exact & ~noisy, 0].flatten()  # deviations of √(light/photons)
    assert said.max() / said.min() > 30


CHANGES = {
    "reconstructor__universal": True,
    "train__loss": "log",
    "readout__share": 0.5,
    "sensing__rate": 0.5,
}


def universal_config(out, **changes):
    return unrolled_config(out, **CHANGES, **changes)


def test_a_universal_camera_trains_and_resumes_to_the_same_weights(tmp_path):
    whole = universal_config(tmp_path / "whole", train__epochs=3)
    imager = train(whole)
    assert imager.reconstructor.options.universal
    parts = universal_config(tmp_path / "parts", train__epochs=3, train__checkpoint_epochs=1)
    train_until(parts, 45)
    train(parts, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    image = data.camera()[:32, :32]
    y = torch.from_numpy(imager.sense(image).values.astype(np.float32))[None]
    some = torch.full((1, 4, 4), 5)
    assert imager.reconstruct_batch(y, counts=some).isfinite().all()


def test_errors_in_training_need_a_network_that_is_told():
    with pytest.raises(TersenseError, match=r"readout\.share must be 0 unless .*universal"):
        build_config({"readout": {"share": 0.5}})
    tables = {"reconstructor": {"name": "unrolled", "universal": True}}
    with pytest.raises(TersenseError, match=r"readout\.lowest must be at most"):
        build_config({**tables, "readout": {"share": 0.5, "lowest": 9.0, "highest": 3.0}})
