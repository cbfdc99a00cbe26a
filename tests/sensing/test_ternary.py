"""Selection, binarization, scale and the straight-through gradient of Algorithm 1."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tersense.sensing.patterns import Patterns, nonzeros_for_density, rows_for_rate
from tersense.sensing.ternary import TernarySensor, ternarize, top_k_select

# Few distinct values, zeros among them: ties everywhere.
tied = arrays(np.float32, (6, 10), elements=st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0]))


@settings(max_examples=60, deadline=None)
@given(tied, st.integers(1, 6))
def test_exactly_k_whatever_ties_or_zeros_occur(theta, k):
    theta = torch.from_numpy(theta)
    assert (top_k_select(theta, k, "column").sum(dim=1) == k).all()
    assert (top_k_select(theta, k, "row").sum(dim=0) == k).all()
    assert top_k_select(theta, 7 * k, "matrix").sum() == 7 * k


@pytest.mark.parametrize(("selection", "axis"), [("column", 1), ("row", 0), ("matrix", None)])
def test_the_largest_magnitudes_are_kept(selection, axis):
    theta = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    mask = top_k_select(torch.from_numpy(theta), 5, selection).numpy()
    threshold = np.sort(np.abs(theta), axis=axis)  # ascending
    threshold = threshold[-5] if axis is None else np.take(threshold, [-5], axis=axis)
    np.testing.assert_array_equal(mask, np.abs(theta) >= threshold)


@settings(max_examples=60, deadline=None)
@given(tied, st.integers(1, 10))
def test_every_kept_weight_is_plus_or_minus_one(theta, k):
    phi, _ = ternarize(torch.from_numpy(theta), k)
    assert set(phi.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert (phi.count_nonzero(dim=1) == k).all()
    opposite = (phi.numpy() * theta) < 0
    assert not opposite.any()


@pytest.mark.parametrize("k", [1, 12, 50])
def test_alpha_is_the_least_squares_scale_of_its_pattern(k):
    theta = torch.randn(8, 50, generator=torch.Generator().manual_seed(1))
    phi, alpha = ternarize(theta, k)
    for row, pattern, scale in zip(theta, phi, alpha, strict=True):
        best = np.linalg.lstsq(pattern.numpy()[:, None], row.numpy(), rcond=None)[0]
        assert scale.item() == pytest.approx(best.item(), rel=1e-5)


def test_the_sign_of_nothing_is_plus():
    phi, alpha = ternarize(torch.zeros(2, 3), 3)
    assert (phi == 1).all()
    assert (alpha == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_phi_has_the_precision_of_theta_and_the_mask_has_none(dtype):
    theta = torch.randn(2, 9).to(dtype)
    assert ternarize(theta, 4)[0].dtype == dtype
    assert top_k_select(theta, 4).dtype == torch.bool


def test_a_pattern_without_entries_has_scale_zero():
    theta = torch.tensor([[5.0, 4.0, 3.0], [0.1, 0.2, 0.3]])
    phi, alpha = ternarize(theta, 3, "matrix")
    assert phi.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert alpha.tolist() == [4.0, 0.0]


def test_the_gradient_at_phi_reaches_theta_unmasked_and_unclipped():
    theta = (10 * torch.randn(4, 9)).requires_grad_()
    phi, _ = ternarize(theta, 2)
    gradient = 100 * torch.randn(4, 9)
    phi.backward(gradient)
    assert theta.grad is not None
    torch.testing.assert_close(theta.grad, gradient, rtol=0, atol=0)


def test_no_gradient_flows_through_alpha():
    theta = torch.randn(4, 9, requires_grad=True)
    _, alpha = ternarize(theta, 2)
    assert not alpha.requires_grad


def test_k_of_the_papers_sparsity_ratios():
    ratios = (0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 1.0)
    assert [nonzeros_for_density(r, 1024) for r in ratios] == [1, 5, 10, 51, 102, 307, 1024]


def test_rows_of_the_papers_rates():
    assert [rows_for_rate(r, 32) for r in (0.1, 0.15, 0.2, 0.25, 0.3)] == [102, 153, 204, 256, 307]


def test_there_is_always_a_pattern_and_an_entry():
    assert rows_for_rate(1e-6, 32) == 1
    assert nonzeros_for_density(1e-6, 1024) == 1


def test_a_sensor_is_the_papers_unless_told_otherwise():
    sensor = TernarySensor()
    phi, alpha = sensor()
    assert phi.shape == (256, 32, 32)
    assert sensor.freeze().stride == 32
    assert (phi.flatten(1).count_nonzero(dim=1) == 51).all()
    assert [name for name, _ in sensor.named_parameters()] == ["theta"]
    assert sensor.theta.requires_grad
    assert not alpha.requires_grad


def test_patterns_that_do_not_learn_take_no_gradient():
    sensor = TernarySensor(8, 8, learn=False)
    assert not sensor.theta.requires_grad
    assert not sensor()[0].requires_grad


@pytest.mark.parametrize("selection", ["column", "row", "matrix"])
def test_a_learned_scale_begins_at_alpha_and_goes_its_own_way(selection):
    sensor = TernarySensor(8, 8, density=0.1, selection=selection, learned_scale=True)
    phi, scale = sensor()
    kept = (sensor.theta.abs() * (phi != 0).flatten(1)).sum(dim=1)
    torch.testing.assert_close(scale, kept / phi.flatten(1).count_nonzero(dim=1).clamp(min=1))
    scale.sum().backward()
    assert sensor.scale is not None
    assert sensor.scale.grad is not None
    with torch.no_grad():
        sensor.scale += 1
    assert torch.equal(sensor()[1], sensor.scale)


def test_larger_windows_begin_with_the_patterns_in_their_middle():
    patterns = random_patterns(m=3, window=8, k=5)
    sensor = TernarySensor(window=11, stride=8, rate=5 / 64, density=5 / 121)
    before = sensor.theta.detach().clone()
    assert sensor.start_from(patterns, torch.tensor([1.0, 2.0, 3.0]))
    phi, alpha = (value.detach() for value in sensor())
    np.testing.assert_array_equal(phi[:3, 1:9, 1:9], patterns.phi)
    torch.testing.assert_close(alpha[:3], torch.tensor([1.0, 2.0, 3.0]))
    others = sensor.theta[:3].detach()[phi[:3].flatten(1) == 0]
    assert 0 < others.abs().max() <= 1.5  # half of the largest α
    torch.testing.assert_close(sensor.theta[3:].detach(), before[3:], rtol=0, atol=0)


def test_a_sparser_camera_begins_with_some_weights_of_the_trained_one():
    patterns = random_patterns(m=40, window=16, k=60)
    sensor = TernarySensor(window=16, stride=16, rate=40 / 256, density=10 / 256)
    assert sensor.start_from(patterns, torch.ones(40))
    phi = sensor()[0].detach().numpy()
    taken = phi != 0
    assert (taken.sum((1, 2)) == 10).all()
    np.testing.assert_array_equal(phi[taken], patterns.phi[taken])
    assert abs(np.argwhere(taken)[:, 1].mean() - 7.5) < 1  # from all rows of the window


def test_patterns_that_are_too_large_change_nothing():
    sensor = TernarySensor(window=4, stride=4)
    before = sensor.theta.detach().clone()
    assert not sensor.start_from(random_patterns(m=2, window=5, k=3), torch.ones(2))
    assert torch.equal(sensor.theta, before)


@pytest.mark.parametrize("selection", ["column", "row", "matrix"])
def test_a_sensor_spends_the_same_density_in_every_mode(selection):
    sensor = TernarySensor(window=16, stride=8, rate=0.5, density=0.125, selection=selection)
    phi, alpha = sensor()
    assert phi.shape == (32, 16, 16)
    assert alpha.shape == (32,)
    assert phi.count_nonzero() == 32 * 32
    np.testing.assert_array_equal(sensor.freeze().phi, phi.detach().numpy())


def random_patterns(m=256, window=32, k=51, seed=0):
    rng = np.random.default_rng(seed)
    phi = np.zeros((m, window * window), np.int8)
    for row in phi:
        row[rng.choice(window * window, k, replace=False)] = rng.choice([-1, 1], k)
    return Patterns(phi.reshape(m, window, window), window)


def test_figures_of_the_papers_camera():
    patterns = random_patterns()
    assert patterns.rate == 0.25
    assert patterns.nonzeros == 256 * 51
    assert patterns.additions_per_measurement == 51
    kib = {form: size / 1024 for form, size in patterns.storage_bytes.items()}
    assert kib["float32"] == 1024
    assert kib["2-bit"] == 64
    assert kib["CSC"] == 14.75
    assert kib["random-support entropy"] == pytest.approx(10.60, abs=0.01)
    assert kib["Golomb-Rice"] == pytest.approx(10.8, abs=0.1)


def golomb_rice(gap, k):
    """Write a gap as Golomb-Rice does: its upper part in ones, a zero, and k lower bits."""
    lower = f"{gap % 2**k:0{k}b}" if k else ""
    return "1" * (gap >> k) + "0" + lower


@settings(max_examples=40, deadline=None)
@given(arrays(np.int8, (2, 6, 6), elements=st.sampled_from([-1, 0, 0, 0, 0, 0, 1])))
def test_golomb_rice_storage_is_that_of_a_coder(phi):
    codes = dict.fromkeys(range(16), "")
    for pattern in phi.reshape(2, -1):
        zeros = "".join("01"[int(value != 0)] for value in pattern).split("1")[:-1]
        for k in codes:
            codes[k] += "".join(golomb_rice(len(gap), k) + "s" for gap in zeros)
    shortest = min(map(len, codes.values()))
    assert Patterns(phi, 6).storage_bytes["Golomb-Rice"] == -(-shortest // 8)


@settings(max_examples=40, deadline=None)
@given(arrays(np.int8, (3, 5, 5), elements=st.sampled_from([-1, 0, 1])), st.integers(8, 16))
def test_accumulator_holds_the_extremes_and_is_not_a_bit_too_wide(phi, depth):
    patterns, white = Patterns(phi, 5), 2**depth - 1
    highest = max(white * int((row > 0).sum()) for row in phi)
    lowest = min(-white * int((row < 0).sum()) for row in phi)
    bits = patterns.accumulator_bits_at(depth)
    assert patterns.largest_magnitude_at(depth) == max(highest, -lowest)
    assert patterns.accumulator_bits == patterns.accumulator_bits_at(8)
    assert -(2 ** (bits - 1)) <= lowest
    assert highest <= 2 ** (bits - 1) - 1
    if bits > 1:
        assert lowest < -(2 ** (bits - 2)) or highest > 2 ** (bits - 2) - 1


def test_measurements_need_int32_from_129_equal_signs_on():
    assert Patterns(np.ones((1, 8, 16), np.int8)[:, :, :8], 8).measurement_dtype == np.int16
    phi = np.zeros((1, 16, 16), np.int8)
    phi.reshape(-1)[:128] = 1
    phi.reshape(-1)[128:] = -1
    assert Patterns(phi, 16).measurement_dtype == np.int16
    phi.reshape(-1)[128] = 1
    assert Patterns(phi, 16).measurement_dtype == np.int32


def test_the_hash_names_the_patterns():
    patterns = random_patterns()
    changed = patterns.phi.copy()
    changed[3, 4, 5] = 1 if changed[3, 4, 5] == 0 else 0
    assert Patterns(patterns.phi.copy(), 32).hash == patterns.hash
    assert Patterns(changed, 32).hash != patterns.hash
    assert patterns.first(10).hash != patterns.hash


@pytest.mark.parametrize("stride", [1, 4])
def test_windows_may_be_one_pixel_apart_or_touch(stride):
    assert Patterns(np.ones((2, 4, 4), np.int8), stride).rate == 2 / stride**2


def test_patterns_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        random_patterns().phi[0, 0, 0] = 1


@pytest.mark.parametrize(
    ("phi", "stride"),
    [
        (np.zeros((2, 3, 4), np.int8), 2),
        (np.zeros((2, 4, 4), np.int16), 2),
        (np.full((2, 4, 4), 2, np.int8), 2),
        (np.full((2, 4, 4), -2, np.int8), 2),
        (np.zeros((0, 4, 4), np.int8), 2),
        (np.zeros((2, 4, 4), np.int8), 5),
        (np.zeros((2, 4, 4), np.int8), 0),
    ],
)
def test_impossible_patterns_are_refused(phi, stride):
    with pytest.raises(ValueError, match=r"patterns|stride"):
        Patterns(phi, stride)
