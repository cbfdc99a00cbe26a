"""The camera as a LinearOperator, against the definition and SciPy's own solvers."""

import numpy as np
import pytest
from scipy.sparse.linalg import lsqr, svds

from reference import sense_slowly
from tersense.interop.scipy import TernaryOperator
from tersense.sensing.patterns import random_patterns

CAMERAS = [(12, 8, 8, (16, 24)), (12, 8, 8, (11, 19)), (3, 8, 4, (13, 15)), (2, 7, 3, (10, 11))]


@pytest.fixture(params=CAMERAS, ids=str)
def patterns_and_size(request):
    m, window, stride, size = request.param
    return random_patterns(m, window, 0.3, stride), size


def test_it_is_the_operator(patterns_and_size, rng):
    patterns, size = patterns_and_size
    image = rng.integers(0, 256, size)
    expected = sense_slowly(image, patterns.phi, patterns.stride)
    y = TernaryOperator(patterns, size) @ image.ravel()
    np.testing.assert_array_equal(y, expected.ravel())


def test_vectors_matrices_and_the_adjoint_agree(patterns_and_size, rng):
    operator = TernaryOperator(*patterns_and_size)
    matrix = operator @ np.eye(operator.shape[1])
    np.testing.assert_array_equal(operator.H @ np.eye(operator.shape[0]), matrix.T)
    v = rng.normal(size=operator.shape[0])
    np.testing.assert_allclose(operator.rmatvec(v), matrix.T @ v, atol=1e-10)
    assert (operator.T @ v).dtype == np.float64


def test_solvers_of_scipy_run_on_it(patterns_and_size, rng):
    operator = TernaryOperator(*patterns_and_size)
    matrix = operator @ np.eye(operator.shape[1])
    y = rng.normal(size=operator.shape[0])
    found = lsqr(operator, y, atol=1e-12, btol=1e-12, iter_lim=5000)[0]
    np.testing.assert_allclose(found, np.linalg.pinv(matrix) @ y, atol=1e-6)
    largest = svds(operator, k=1, return_singular_vectors=False)[0]
    assert largest == pytest.approx(np.linalg.norm(matrix, 2))


def test_it_has_the_precision_that_is_asked_for():
    operator = TernaryOperator(random_patterns(4, 8), (9, 9), np.float32)
    assert operator.dtype == np.float32
    assert (operator @ np.ones(81)).dtype == np.float32


def test_what_is_no_image_is_refused():
    operator = TernaryOperator(random_patterns(4, 8), (8, 8))
    with pytest.raises(TypeError, match="real"):
        operator @ (1j * np.ones(64))
    with pytest.raises(ValueError, match="0×8"):
        TernaryOperator(random_patterns(4, 8), (0, 8))
