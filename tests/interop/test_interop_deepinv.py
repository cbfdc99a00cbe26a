"""The camera in deepinv: its checks pass, its solvers run, and it evaluates our networks."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage import data

import tersense
from tersense import Readout
from tersense.interop.deepinv import (
    ReadoutModel,
    ReadoutNoise,
    TernaryPhysics,
    TernaryReconstructor,
)
from tersense.interop.noise import readouts_of
from tersense.measurements.color import to_differences
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns, random_patterns

import deepinv as dinv  # isort: skip (behind ours, which lets it load beside a CPU torch)

# (m, window, density, stride, image): whole blocks, cut ones, one smaller than a window, lapped
# windows of several overlaps, an odd window, and cut windows with more patterns than pixels.
CAMERAS = [
    (20, 8, 0.2, 8, (16, 24)),
    (20, 8, 0.2, 8, (19, 21)),
    (20, 8, 0.2, 8, (5, 3)),
    (5, 8, 0.3, 4, (18, 15)),
    (2, 8, 0.3, 2, (13, 12)),
    (4, 7, 0.3, 3, (14, 13)),
]


def make(camera, channels=1, **options):
    m, window, density, stride, size = camera
    patterns = random_patterns(m, window, density, stride, seed=3)
    return TernaryPhysics(patterns, (channels, *size), **options)


def as_matrix(linear, shape):
    """Return a linear map of (N, *shape) as a plain matrix."""
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).view(-1, *shape)
    return linear(units).flatten(1).T.numpy()


@pytest.fixture(params=CAMERAS, ids=str)
def camera(request):
    return request.param


def test_the_adjoint_is_one(camera):
    physics = make(camera, channels=3).double()
    x = torch.rand(2, 3, *camera[-1], dtype=torch.float64)
    assert physics.adjointness_test(x) < 1e-9
    automatic = dinv.physics.adjoint_function(physics.A, x.shape, dtype=x.dtype)
    y = torch.randn_like(physics.A(x))
    torch.testing.assert_close(physics.A_adjoint(y), automatic(y))


def test_the_norm_is_one(camera):
    physics = make(camera)
    x = torch.zeros(1, 1, *camera[-1])
    assert float(physics.compute_sqnorm(x, max_iter=300, tol=1e-5, verbose=False)) == (
        pytest.approx(1, abs=0.01)
    )


def test_without_normalizing_it_is_the_camera_itself(small_imager):
    image = data.camera()[100:129, 200:250]
    physics = TernaryPhysics(small_imager.patterns, (1, 29, 50), normalize=False)
    y = physics(torch.from_numpy(image)[None, None].float())
    np.testing.assert_array_equal(y[0, 0].numpy(), small_imager.sense(image).values)


def test_the_inverse_is_that_of_moore_and_penrose(camera):
    physics = make(camera).double()
    image = (1, *camera[-1])
    forward = as_matrix(physics.A, image)
    measured = tuple(physics.A(torch.zeros(1, *image, dtype=torch.float64)).shape[1:])
    inverse = as_matrix(lambda y: physics.A_dagger(y, tol=1e-13), measured)
    for product in (forward @ inverse, inverse @ forward):
        np.testing.assert_allclose(product, product.T, atol=1e-8)
    np.testing.assert_allclose(forward @ inverse @ forward, forward, atol=1e-8)
    np.testing.assert_allclose(inverse @ forward @ inverse, inverse, atol=1e-7)


def test_deepinvs_own_check_of_the_inverse_passes(camera):
    physics = make(camera)
    x = torch.randn(1, 1, *camera[-1], generator=torch.Generator().manual_seed(0))
    r = physics.A_adjoint(physics.A(x))
    found = physics.A_dagger(physics.A(r), "lsqr", tol=0.0001, max_iter=200, verbose=True)
    assert float((found - r).norm() / r.norm()) < 0.05


def test_copies_stacks_and_proximal_steps_work(camera):
    physics = make(camera)
    x = torch.rand(2, 1, *camera[-1])
    y = physics(x)
    torch.testing.assert_close(physics.clone()(x), y)
    both = physics.stack(dinv.physics.Denoising())
    assert both.adjointness_test(x) < 1e-5
    near = physics.prox_l2(torch.zeros_like(x), y, gamma=1.0)
    torch.testing.assert_close(near + physics.A_adjoint(physics.A(near) - y), 0 * x, atol=1e-3,
                               rtol=0)  # fmt: skip


def test_gradients_flow_through_the_inverse(camera):
    physics = make(camera).double()
    y = physics.A(torch.rand(1, 1, *camera[-1], dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda y: physics.A_dagger(y, tol=1e-12), (y,), fast_mode=True, atol=1e-4
    )


def test_an_inverse_that_is_not_found_in_time_says_so():
    physics = make(CAMERAS[3])
    y = torch.randn_like(physics.A(torch.rand(1, 1, 18, 15)))
    with pytest.warns(RuntimeWarning, match="after 2 steps"):
        physics.A_dagger(y, max_iter=2)


def test_noise_comes_before_the_readout(small_imager):
    physics = TernaryPhysics(small_imager.patterns, (1, 64, 64))
    x = torch.rand(4, 1, 64, 64)
    sigma = float(4 * physics.scale / 255)
    physics.noise_model = dinv.physics.GaussianNoise(sigma)
    noise = physics.to_camera(physics(x) - physics.A(x))
    assert float(noise.std()) == pytest.approx(4, rel=0.05)  # in pixel values
    physics.sensor_model = ReadoutModel(physics, Readout.covering(2000, bits=6))
    codes = physics.to_camera(physics(x)) / physics.sensor_model.readout.step
    torch.testing.assert_close(codes, codes.round(), atol=1e-3, rtol=0)
    assert len(codes.round().unique()) <= 2**6 - 1


READOUTS = [*map(Readout.ranging, (2, 5, 12, 32)), Readout.covering(1000, 6),
            Readout.ranging(6, percentile=90.0)]  # fmt: skip


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_the_readout_is_that_of_the_camera(small_imager, readout):
    images = [data.coffee()[50:113, left : left + 61] for left in (90, 200)]
    physics = TernaryPhysics(small_imager.patterns, (3, 63, 61))
    physics.sensor_model = ReadoutModel(physics, readout)
    x = torch.from_numpy(np.stack(images)).movedim(-1, 1).double() / 255
    measured = [small_imager.sense(image, readout=readout) for image in images]
    expected = [y.header.readout.values(y.values) for y in measured]
    np.testing.assert_allclose(physics.to_camera(physics.double()(x)).numpy(), expected,
                               rtol=1e-5, atol=1e-3)  # fmt: skip
    in_deepinv = physics.from_camera(measured[0])
    np.testing.assert_allclose(physics.to_camera(in_deepinv)[0].numpy(), expected[0], rtol=1e-6)


def test_photons_are_those_of_two_exposures_by_deepinv_and_of_the_camera(small_imager):
    """Three ways to the same noise: ours, deepinv's on each exposure, ours in deepinv."""
    image, readout = data.camera()[:64, :64], Readout(photons=0.5, noise=3.0)
    physics = TernaryPhysics(small_imager.patterns, (1, 64, 64), noise_model=None)
    x = torch.from_numpy(image)[None, None].double().expand(400, 1, -1, -1) / 255
    physics = physics.double()
    physics.noise_model = ReadoutNoise(physics, readout)
    here = physics.to_camera(physics(x, seed=3))

    def exposure(sign):
        lit = Patterns((small_imager.phi == sign).astype(np.int8), small_imager.patterns.stride)
        shown = TernaryPhysics(lit, (1, 64, 64), normalize=False).double()
        sigma = 3.0 / 2**0.5 / 255
        shown.noise_model = dinv.physics.PoissonGaussianNoise(gain=2.0 / 255, sigma=sigma)
        return 255 * shown(x, seed=5 + sign)

    theirs = exposure(1) - exposure(-1)
    ours = [small_imager.sense(image, readout=replace(readout, seed=s)).values for s in range(400)]
    for one in (here, torch.from_numpy(np.stack(ours))[:, None].double()):
        assert abs(one.mean(0) - theirs.mean(0)).mean() < 0.1 * theirs.std(0).mean()
        np.testing.assert_allclose(one.var(0).mean((0, 2, 3)), theirs.var(0).mean((0, 2, 3)),
                                   rtol=0.05)  # fmt: skip
    with pytest.raises(ValueError, match="light"):
        physics.noise_model(physics.A(x[:1]))


@pytest.mark.parametrize("name", ["paper-r25", "block-r25"])
@pytest.mark.parametrize("color", [False, True])
def test_our_networks_give_in_deepinv_what_they_give_here(name, color):
    imager = tersense.load(name)
    image = data.coffee()[50:120, 90:190]
    image = image if color else image[..., 0]
    channels = 3 if color else 1
    measurements = imager.sense(image)
    physics = TernaryPhysics(imager.patterns, (channels, 70, 100))
    with torch.no_grad():
        x = TernaryReconstructor(imager)(physics.from_camera(measurements), physics)
    planes = x[0].movedim(0, -1).numpy() if color else x[0, 0].numpy()
    np.testing.assert_allclose(255 * planes, imager.estimate(measurements), atol=0.02)


@pytest.mark.parametrize("percentile", [100.0, 98.0])
def test_a_network_is_told_the_steps_of_each_image(percentile):
    """Two images in one batch, one of them dark: their steps differ by more than a factor of 3."""
    patterns = tersense.load("paper-r25").patterns
    imager = tersense.Imager.untrained(patterns, "linear", noise=1e-3)
    photo = data.coffee()[50:178, 90:250, 0]
    readout = tersense.Readout.ranging(4, percentile=percentile)
    physics = TernaryPhysics(patterns, (1, 128, 160))
    physics.sensor_model = ReadoutModel(physics, readout)
    recorded = [imager.sense(image, readout=readout) for image in (photo, photo // 4)]
    y = torch.cat([physics.from_camera(measured) for measured in recorded])
    with torch.no_grad():
        told = 255 * TernaryReconstructor(imager)(y, physics)[:, 0].numpy()
        physics.sensor_model = torch.nn.Identity()
        untold = 255 * TernaryReconstructor(imager)(y, physics)[:, 0].numpy()
    for measured, right, wrong in zip(recorded, told, untold, strict=True):
        expected = imager.estimate(measured)
        # Steps of the dark image are a few pixel values: one of them more or less is seen.
        assert np.abs(right - expected).mean() < 0.1 * np.abs(wrong - expected).mean()


def test_deepinv_evaluates_our_network(small_imager):
    physics = TernaryPhysics(small_imager.patterns, (1, 40, 40))
    images = torch.from_numpy(data.camera()[:40, :400]).float().div(255).split(40, dim=1)
    pairs = [(image[None], physics(image[None, None])[0]) for image in images]
    model = TernaryReconstructor(small_imager)
    figures = dinv.test(
        model, torch.utils.data.DataLoader(pairs, batch_size=5), physics,
        metrics=dinv.metric.PSNR(), verbose=False, show_progress_bar=False,
    )  # fmt: skip
    from tersense.evaluation.metrics import psnr

    own = []
    for image in images:
        pixels = (255 * image).round().to(torch.uint8).numpy()
        own.append(psnr(small_imager.estimate(small_imager.sense(pixels)), pixels))
    assert figures["PSNR"] == pytest.approx(np.mean(own), abs=0.01)


def test_deepinv_can_train_our_network_further(small_imager):
    physics = TernaryPhysics(small_imager.patterns, (1, 16, 16))
    model = TernaryReconstructor(small_imager).train()
    x = torch.rand(8, 1, 16, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = dinv.loss.SupLoss()(x_net=model(physics(x), physics), x=x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_a_solver_of_deepinv_agrees_with_the_measurements():
    physics = make(CAMERAS[0])
    x = torch.rand(1, 1, 16, 24)
    y = physics(x)
    solver = dinv.optim.FISTA(
        data_fidelity=dinv.optim.L2(), prior=dinv.optim.TVPrior(n_it_max=20), lambda_reg=1e-5,
        stepsize=1.0, max_iter=100,
    )  # fmt: skip
    with torch.no_grad():
        estimate = solver(y, physics)
    assert float((physics.A(estimate) - y).norm() / y.norm()) < 0.01


def test_the_patterns_can_be_exchanged(small_imager, make_imager):
    other = make_imager(seed=1)
    physics = TernaryPhysics(small_imager.patterns, (1, 16, 16), normalize=False)
    physics.update(phi=other.operator.phi)
    x = torch.rand(1, 1, 16, 16)
    torch.testing.assert_close(physics(x)[0], other.operator.forward(x[0]))


def test_color_differences_are_no_channels(small_imager, refused):
    exact = small_imager.sense(np.zeros((16, 24, 3), np.uint8))
    grid = exact.header.shape[-2:]
    y = to_differences(exact, Readout(8, 4.0), np.ones((3, *grid), np.int32))
    with refused("brightness and color differences"):
        TernaryPhysics(small_imager.patterns, (3, 16, 24)).from_camera(y)


def test_other_patterns_sizes_and_physics_are_refused(small_imager, make_imager, refused):
    physics = TernaryPhysics(small_imager.patterns, (1, 16, 24))
    other = make_imager(seed=1)
    y = physics(torch.rand(1, 1, 16, 24))
    with refused("other patterns"):
        TernaryReconstructor(other)(y, physics)
    with refused(other.patterns.hash[:12], small_imager.patterns.hash[:12]):
        physics.from_camera(other.sense(np.zeros((16, 24), np.uint8)))
    with refused("(1, 17, 24)", "(1, 16, 24)"):
        physics.from_camera(small_imager.sense(np.zeros((17, 24), np.uint8)))
    with pytest.raises(ValueError, match=r"senses \(1, 16, 24\), not \(1, 24, 16\)"):
        physics(torch.rand(1, 1, 24, 16))
    with pytest.raises(TypeError, match="TernaryPhysics"):
        TernaryReconstructor(small_imager)(y, dinv.physics.Denoising())


def test_building_it_disturbs_nobody():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(CAMERAS[3])
    assert torch.equal(torch.rand(3), expected)


def counted(camera, channels=1, **options):
    """Return a physics whose windows take 0 to m rows; those of channels differ."""
    m, window, density, stride, size = camera
    patterns = random_patterns(m, window, density, stride, seed=3)
    grid = Geometry(window, stride).grid(*size)
    shape = grid if channels == 1 else (channels, *grid)
    counts = np.random.default_rng(4).integers(0, m + 1, shape)
    counts.flat[0] = m
    return TernaryPhysics(patterns, (channels, *size), counts=counts, **options)


@pytest.mark.parametrize("channels", [1, 3])
def test_with_counts_the_adjoint_is_one_and_the_norm_at_most(camera, channels):
    physics = counted(camera, channels).double()
    x = torch.rand(2, channels, *camera[-1], dtype=torch.float64)
    assert physics.adjointness_test(x) < 1e-9
    automatic = dinv.physics.adjoint_function(physics.A, x.shape, dtype=x.dtype)
    y = torch.randn_like(physics.A(x))
    torch.testing.assert_close(physics.A_adjoint(y), automatic(y))
    torch.testing.assert_close(physics.A_vjp(x, y), physics.A_adjoint(y))
    forward = as_matrix(physics.A, (channels, *camera[-1]))
    # deepinv draws its start as it likes: the power method never says more than the norm.
    norm = physics.compute_norm(x[:1], max_iter=1000, tol=1e-7, verbose=False, squared=False)
    assert float(norm) == pytest.approx(np.linalg.norm(forward, 2), rel=0.01)
    assert np.linalg.norm(forward, 2) < 1.001


def test_with_counts_the_inverse_is_that_of_moore_and_penrose(camera):
    physics = counted(camera).double()
    image = (1, *camera[-1])
    forward = as_matrix(physics.A, image)
    measured = tuple(physics.A(torch.zeros(1, *image, dtype=torch.float64)).shape[1:])
    inverse = as_matrix(lambda y: physics.A_dagger(y, tol=1e-13), measured)
    np.testing.assert_allclose(inverse, np.linalg.pinv(forward), atol=1e-6)
    y = torch.randn(1, *measured, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda y: physics.A_dagger(y, tol=1e-12), (y,), fast_mode=True, atol=1e-4
    )


@pytest.mark.parametrize(
    "readout", [None, Readout.ranging(6), Readout.ranging(6, percentile=90.0)], ids=str
)
@pytest.mark.parametrize("color", [False, True])
def test_counts_are_those_of_the_camera(readout, color):
    imager = tersense.Imager.untrained(random_patterns(6, 8, 0.3))
    image = data.coffee()[50:66, 90:114]
    image = image if color else image[..., 0]
    counts = np.random.default_rng(0).integers(0, 7, (3, 2, 3) if color else (2, 3))
    counts.flat[1] = 6
    measured = imager.sense(image, readout=readout or Readout(), counts=counts)
    physics = TernaryPhysics(imager.patterns, (3 if color else 1, 16, 24), counts=measured.counts)
    physics = physics.double()
    x = torch.from_numpy(np.atleast_3d(image)).movedim(-1, 0)[None].double() / 255
    if readout is not None:
        physics.sensor_model = ReadoutModel(physics, readout)
    torch.testing.assert_close(physics(x), physics.from_camera(measured), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        estimate = TernaryReconstructor(imager)(physics(x).float(), physics.float())
    planes = estimate[0].movedim(0, -1).reshape(image.shape)
    np.testing.assert_allclose(255 * planes.numpy(), imager.estimate(measured), atol=0.05)


@pytest.mark.parametrize("bits", [0, 16])
def test_noise_comes_to_what_is_measured_only(bits):
    physics = counted(CAMERAS[0])
    physics.noise_model = ReadoutNoise(physics, Readout(noise=3.0))
    if bits:
        physics.sensor_model = ReadoutModel(physics, bits)
    x = torch.rand(1, 1, 16, 24)
    noise = physics.to_camera(physics(x.expand(300, -1, -1, -1)) - physics.A(x))
    there = torch.arange(20)[:, None, None] < physics.counts
    assert not noise[:, 0, ~there].any()
    assert float(noise[:, 0, there].std()) == pytest.approx(3, rel=0.05)


def test_counts_may_be_given_later_and_for_each_image():
    physics = make(CAMERAS[0])
    x = torch.rand(2, 1, 16, 24)
    everything = physics(x)
    counts = torch.randint(0, 21, (2, 1, 2, 3), generator=torch.Generator().manual_seed(0))
    y = physics(x, counts=counts)
    there = torch.arange(20)[:, None, None] < counts[:, :, None]
    torch.testing.assert_close(y, everything * there)
    torch.testing.assert_close(physics.clone()(x), y)
    one = make(CAMERAS[0])
    one.update(counts=counts[1, 0])
    torch.testing.assert_close(one(x[1:]), y[1:])
    both = physics.stack(dinv.physics.Denoising())
    assert both.adjointness_test(x, num_samples=2) < 1e-5


NOISES = [
    (dinv.physics.GaussianNoise, {"sigma": 0.02}),
    (dinv.physics.UniformNoise, {"a": 0.03}),
    (dinv.physics.LaplaceNoise, {"b": 0.02}),
    (dinv.physics.PoissonNoise, {"gain": 0.002}),
    (dinv.physics.PoissonGaussianNoise, {"gain": 0.002, "sigma": 0.02}),
]


@pytest.mark.parametrize(("noise", "levels"), NOISES, ids=lambda value: str(value))
def test_a_network_is_told_the_noise_of_deepinvs_models(noise, levels):
    """What it is told is the deviation that the model really gives."""
    lit = np.abs(random_patterns(6, 8, 0.3, seed=1).phi).astype(np.int8)  # no −1: y is light
    physics = TernaryPhysics(Patterns(lit, 8), (1, 16, 24), noise_model=noise(**levels))
    x = torch.rand(1, 1, 16, 24, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    error = physics.to_camera(physics(x.expand(4000, -1, -1, -1)) - physics.A(x)).double()
    (told,) = readouts_of(physics.noise_model, float(physics.scale) / 255)
    light = physics.to_camera(physics.A(x)).double()
    expected = torch.as_tensor(told.deviation_at(light)).to(light).expand(light.shape)
    torch.testing.assert_close(error.std(0)[None], expected, rtol=0.06, atol=0)


def test_levels_of_each_image_reach_the_network():
    imager = tersense.Imager.untrained(random_patterns(20, 8, 0.3), "linear")
    physics = TernaryPhysics(imager.patterns, (1, 16, 24))
    levels = torch.tensor([0.0, 0.2])
    physics.noise_model = dinv.physics.GaussianNoise(levels)
    y = physics(torch.rand(2, 1, 16, 24))
    model = TernaryReconstructor(imager)
    together = model(y, physics)
    for one, level, image in zip(y, levels, together, strict=True):
        physics.noise_model = dinv.physics.GaussianNoise(float(level))
        torch.testing.assert_close(model(one[None], physics)[0], image)
    physics.noise_model = dinv.physics.SaltPepperNoise()  # not known: nothing is told
    torch.testing.assert_close(model(y[:1], physics)[0], together[0])


def test_other_counts_are_refused(refused):
    imager = tersense.Imager.untrained(random_patterns(6, 8, 0.3))
    y = imager.sense(np.zeros((16, 24), np.uint8), counts=3)
    for counts in (None, 2):
        with refused("counts=measurements.counts"):
            TernaryPhysics(imager.patterns, (1, 16, 24), counts=counts).from_camera(y)
    with refused("must have shape (2, 3)", "(3, 2)"):
        TernaryPhysics(imager.patterns, (1, 16, 24), counts=np.ones((3, 2), int))
    with refused("from 0 to 6"):
        TernaryPhysics(imager.patterns, (1, 16, 24), counts=7)
    paper = tersense.load("paper-r25")
    physics = TernaryPhysics(paper.patterns, (1, 32, 32), counts=100)
    with refused("needs all 256 rows"):
        TernaryReconstructor(paper)(physics(torch.rand(1, 1, 32, 32)), physics)
