"""The classical solvers against a linear program, a smooth minimizer and what must come out."""

import warnings

import numpy as np
import pytest
import torch
from scipy.fft import dctn, idctn
from scipy.linalg import null_space
from scipy.optimize import linprog, minimize
from skimage import data

from tersense.errors import TersenseError
from tersense.evaluation.protocols import evaluate_folder, reconstruct_overlapping, score_image
from tersense.io.images import write_image
from tersense.models.imager import Imager
from tersense.reconstruction.solvers.primal_dual import basis_pursuit, total_variation
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns

CAMERA = data.camera()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small problems run faster on one thread, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def real_windows(count, window, seed=0):
    """Cut (N, B, B) float64 windows out of a photograph."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 512 - window, (count, 2))
    return np.stack([CAMERA[r : r + window, c : c + window] for r, c in corners]).astype(float)


def sense_windows(x, patterns):
    """Return y (N, m) and phi (m, B, B), float64."""
    phi = torch.tensor(patterns.phi, dtype=torch.float64)
    return torch.einsum("nij,mij->nm", torch.from_numpy(x), phi), phi


def build_operator(patterns, dtype=torch.float64):
    return SensingOperator(torch.tensor(patterns.phi, dtype=dtype), patterns.stride)


def l1_of_dct(x):
    return np.abs(dctn(np.asarray(x), axes=(-2, -1), norm="ortho")).sum((-2, -1))


def smallest_l1(a, b):
    """Solve min ‖u‖₁ subject to Au = b as a linear program in u = u⁺ − u⁻."""
    solution = linprog(np.ones(2 * a.shape[1]), np.zeros((0, 2 * a.shape[1])), np.zeros(0),
                       np.hstack([a, -a]), b, method="highs")  # fmt: skip
    assert solution.success
    return solution.fun


def variation(x):
    """Return the isotropic total variation, pixel by pixel."""
    down, right = np.zeros_like(x), np.zeros_like(x)
    down[:-1], right[:, :-1] = np.diff(x, axis=0), np.diff(x, axis=1)
    return np.hypot(down, right).sum()


class TestRandomPatterns:
    @pytest.mark.parametrize(("density", "count"), [(0.05, 51), (0.001, 1), (1.0, 1024)])
    def test_sparse_rows_have_exactly_k_entries_of_both_signs(self, density, count):
        patterns = random_patterns(256, 32, density, seed=3)
        assert patterns.phi.shape == (256, 32, 32)
        assert patterns.stride == 32
        assert (np.count_nonzero(patterns.phi, axis=(1, 2)) == count).all()
        signs = patterns.phi[patterns.phi != 0].astype(int)
        assert abs(signs.mean()) < 5 / np.sqrt(signs.size)

    def test_not_sparse_means_a_third_each(self):
        phi = random_patterns(256).phi
        for value in (-1, 0, 1):
            assert np.mean(phi == value) == pytest.approx(1 / 3, abs=0.005)  # over 5 deviations

    def test_places_are_spread_evenly_over_the_window(self):
        counts = np.count_nonzero(random_patterns(4000, 8, 0.25).phi, axis=0)
        assert abs(counts / 4000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 4000)

    @pytest.mark.parametrize("density", [None, 0.1])
    def test_a_seed_is_a_matrix(self, density):
        one, same, other = (random_patterns(9, 8, density, seed=seed).phi for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, same)
        assert (one != other).any()


class TestBasisPursuit:
    @pytest.mark.parametrize("density", [None, 0.05])
    def test_reaches_the_minimum_of_the_linear_program(self, density):
        x = real_windows(4, 16)
        y, phi = sense_windows(x, random_patterns(64, 16, density))
        solution = basis_pursuit(y, phi, tolerance=1e-4)
        atoms = dctn(phi.numpy(), axes=(1, 2), norm="ortho").reshape(64, -1)
        expected = [smallest_l1(atoms, b) for b in y.numpy()]
        reached = l1_of_dct(solution.x)
        np.testing.assert_allclose(reached, expected, rtol=2e-4)
        assert (reached >= np.array(expected) * (1 - 1e-9)).all()
        assert (reached < 0.999 * l1_of_dct(x)).any()  # the photograph itself is no minimum
        assert solution.gap <= 1e-4
        assert solution.violation < 1e-12
        sensed = torch.einsum("nij,mij->nm", solution.x, phi)
        torch.testing.assert_close(sensed, y, rtol=1e-9, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_recovers_what_is_sparse_in_the_dct(self, rng, dtype):
        u = np.zeros((5, 16, 16))
        for window in u:
            window.flat[rng.choice(256, 8, replace=False)] = rng.normal(0, 500, 8)
        x = idctn(u, axes=(1, 2), norm="ortho")
        y, phi = sense_windows(x, random_patterns(96, 16))
        solution = basis_pursuit(y.to(dtype), phi, tolerance=1e-4)
        assert solution.x.dtype == dtype
        assert np.abs(solution.x.numpy() - x).max() < 0.5  # of about 300

    def test_many_windows_are_many_problems(self):
        y, phi = sense_windows(real_windows(6, 8), random_patterns(16, 8))
        y *= torch.logspace(-3, 3, 6)[:, None]  # of very different brightness, too
        together = l1_of_dct(basis_pursuit(y, phi, 1e-4).x)
        alone = [l1_of_dct(basis_pursuit(one[None], phi, 1e-4).x)[0] for one in y]
        np.testing.assert_allclose(together, alone, rtol=2e-4)

    def test_as_many_measurements_as_pixels_leave_no_choice(self):
        x = real_windows(3, 8)[:, :, :5]
        patterns = random_patterns(64, 8)
        phi = torch.tensor(patterns.phi, dtype=torch.float64)[:, :, :5]  # 64 rows of rank 40
        solution = basis_pursuit(torch.einsum("nij,mij->nm", torch.from_numpy(x), phi), phi)
        np.testing.assert_allclose(solution.x, x, atol=1e-6)

    def test_says_when_it_has_not_arrived(self):
        y, phi = sense_windows(real_windows(2, 16), random_patterns(64, 16))
        with pytest.warns(RuntimeWarning, match="7 iterations"):
            solution = basis_pursuit(y, phi, iterations=7)
        assert solution.iterations == 7
        assert solution.gap > 1e-3
        assert solution.violation < 1e-12

    def test_agrees_with_spgl1(self):
        import spgl1

        x = real_windows(2, 32)
        y, phi = sense_windows(x, random_patterns(256))
        atoms = dctn(phi.numpy(), axes=(1, 2), norm="ortho").reshape(256, -1)
        solution = basis_pursuit(y, phi)
        for b, mine in zip(y.numpy(), l1_of_dct(solution.x), strict=True):
            theirs = spgl1.spg_bp(atoms, b, iter_lim=3000)[0]
            assert mine == pytest.approx(np.abs(theirs).sum(), rel=2e-3)


class TestTotalVariation:
    def test_reaches_the_minimum_of_the_linear_program_in_one_dimension(self):
        patterns = random_patterns(3, 8, seed=1)
        operator = build_operator(patterns)
        x = torch.tensor(CAMERA[100:101, 60:90], dtype=torch.float64)  # 30 = 3 whole windows + 6
        y = operator.forward(x)
        solution = total_variation(y, operator, (1, 30), tolerance=1e-4)
        phi = np.stack([operator.forward(e.view(1, 30)).flatten().numpy()
                        for e in torch.eye(30, dtype=torch.float64)], axis=1)  # fmt: skip
        # minimize the sum of t ≥ |Dx|
        steps, bounds = np.diff(np.eye(30), axis=0), -np.eye(29)
        program = linprog(
            np.r_[np.zeros(30), np.ones(29)],
            np.block([[steps, bounds], [-steps, bounds]]), np.zeros(58),
            np.hstack([phi, np.zeros((len(phi), 29))]), y.flatten().numpy(),
            bounds=[(None, None)] * 59,
        )  # fmt: skip
        assert program.success
        assert variation(solution.x.numpy()) == pytest.approx(program.fun, rel=2e-4)
        assert program.fun < 0.99 * variation(x.numpy())

    def test_reaches_the_minimum_that_a_smooth_method_finds(self):
        operator = build_operator(random_patterns(8, 5, seed=2))
        x = torch.tensor(CAMERA[120:127, 200:208:], dtype=torch.float64)  # 7×8: three cut windows
        y = operator.forward(x)
        solution = total_variation(y, operator, (7, 8), tolerance=1e-4)
        phi = np.stack([operator.forward(e.view(7, 8)).flatten().numpy()
                        for e in torch.eye(56, dtype=torch.float64)], axis=1)  # fmt: skip
        free, start = torch.from_numpy(null_space(phi)), torch.from_numpy(
            np.linalg.lstsq(phi, y.flatten().numpy(), rcond=None)[0])  # fmt: skip
        assert free.shape[1] > 10

        def smooth(c):
            c = torch.tensor(c, requires_grad=True)
            image = (start + free @ c).view(7, 8)
            down = torch.nn.functional.pad(image.diff(dim=0), (0, 0, 0, 1))
            right = torch.nn.functional.pad(image.diff(dim=1), (0, 1))
            value = (down**2 + right**2 + 1e-4).sqrt().sum()
            value.backward()
            return value.item(), c.grad.numpy()

        found = minimize(smooth, np.zeros(free.shape[1]), jac=True, method="L-BFGS-B",
                         options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-14})  # fmt: skip
        # smoothing adds at most 0.01 per pixel
        assert variation(solution.x.numpy()) == pytest.approx(found.fun, rel=1e-3)

    @pytest.mark.parametrize("size", [(64, 64), (40, 43), (8, 40), (33, 20)])
    def test_agrees_with_the_measurements_and_is_the_smoothest_that_does(self, size):
        operator = build_operator(random_patterns(256, 32, 0.05), torch.float32)
        x = torch.tensor(CAMERA[50 : 50 + size[0], 180 : 180 + size[1]]).float()
        y = operator.forward(x)
        solution = total_variation(y, operator, size)
        assert solution.x.shape == size
        assert solution.gap <= 1e-3
        assert solution.violation < 1e-5
        torch.testing.assert_close(operator.forward(solution.x), y, rtol=1e-4, atol=0.5)
        # No image that agrees has less, so the original has not (up to the tolerance).
        assert variation(solution.x.numpy()) <= 1.002 * variation(x.numpy())

    def test_is_far_smoother_than_the_shortest_solution(self):
        patterns = random_patterns(64, 16)
        x = real_windows(3, 16)
        y, phi = sense_windows(x, patterns)
        shortest = (torch.linalg.pinv(phi.flatten(1)) @ y.T).T.view(3, 16, 16).numpy()
        batch = total_variation(y[:, :, None, None], build_operator(patterns), (16, 16)).x.numpy()
        for one, other in zip(batch, shortest, strict=True):
            assert variation(one) < 0.5 * variation(other)

    @pytest.mark.parametrize("value", [0, 200])
    def test_a_flat_image_comes_back(self, value):
        operator = build_operator(random_patterns(16, 8))
        x = torch.full((20, 13), float(value), dtype=torch.float64)
        solution = total_variation(operator.forward(x), operator, (20, 13))
        torch.testing.assert_close(solution.x, x, rtol=0, atol=0.1)


class TestUntrainedImager:
    @pytest.mark.parametrize("method", ["bp", "tv"])
    def test_scores_like_a_trained_camera_by_both_protocols(self, tmp_path, method):
        imager = Imager.untrained(random_patterns(64, 16, 0.1), method)
        image = CAMERA[100:140, 200:250]
        write_image(tmp_path / "camera.png", image)
        blocks, overlapping = (evaluate_folder(imager, tmp_path, s)["mean"] for s in (None, 8))
        assert 15 < blocks["psnr"] < overlapping["psnr"]
        estimate = imager.estimate(imager.sense(image))
        assert estimate.shape == image.shape
        assert score_image(imager, "", image).psnr == pytest.approx(blocks["psnr"])

    def test_estimates_agree_with_what_was_sensed_in_cut_windows_too(self):
        imager = Imager.untrained(random_patterns(64, 16), "bp")
        image = CAMERA[
            100:141, 200:233
        ]  # the last row of windows is 9 high, the last column 1 wide
        y = imager.sense(image)
        estimate = torch.from_numpy(imager.estimate(y))
        sensed = imager.operator.forward(estimate).numpy()
        np.testing.assert_allclose(sensed, y.values, atol=0.05)
        np.testing.assert_allclose(estimate[:, 32], image[:, 32], atol=0.05)  # 16 of 64 unknown

    def test_windows_side_by_side_are_the_blocks(self):
        imager = Imager.untrained(random_patterns(64, 16), "bp")
        image = CAMERA[100:132, 200:248]
        averaged, taken = reconstruct_overlapping(imager, image, 16)
        blocks = imager.estimate(imager.sense(image))
        assert taken == 64 * 2 * 3
        np.testing.assert_allclose(averaged, blocks, atol=0.02)

    def test_total_variation_beats_basis_pursuit_on_a_photograph(self):
        patterns, image = random_patterns(256, 32, 0.05), CAMERA[64:192, 160:288]
        bp, tv = (score_image(Imager.untrained(patterns, m), "", image) for m in ("bp", "tv"))
        assert 20 < bp.psnr < tv.psnr - 2

    def test_overlapping_patterns_are_refused(self, refused):
        for method in ("bp", "tv"):
            with refused("stride must be the window, 16", f"for {method}, got 8"):
                Imager.untrained(random_patterns(16, 16, stride=8), method)

    def test_an_unknown_method_is_refused(self):
        with pytest.raises(TersenseError, match="no reconstructor is called 'lasso'; known: bp"):
            Imager.untrained(random_patterns(16, 8), "lasso")

    def test_real_images_converge_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for method in ("bp", "tv"):
                imager = Imager.untrained(random_patterns(102, 32, 0.05), method)
                imager.estimate(imager.sense(CAMERA[200:264, 100:164]))
