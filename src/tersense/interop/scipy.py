"""The camera as a `scipy.sparse.linalg.LinearOperator`: for LSQR, svds, eigsh and friends."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError, install_hint
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

try:
    from scipy.sparse.linalg import LinearOperator
except ImportError as error:
    raise TersenseError(f"a LinearOperator needs scipy: {install_hint('baselines')}") from error


class TernaryOperator(LinearOperator):  # type: ignore[misc]
    """Φ for gray images of one size, as the matrix that it is.

    Args:
        patterns: The patterns, as `imager.patterns` holds them.
        size: (H, W) of the images.
        dtype: Of the results: float64 or float32.

    An image is a vector of its H·W pixels, row by row; measurements are a vector in the order of
    `y.values`, (m, h, w).

    Example:
        >>> import tersense, numpy as np
        >>> from scipy.sparse.linalg import lsqr
        >>> from tersense.interop.scipy import TernaryOperator
        >>> imager = tersense.load("paper-r25")
        >>> y = imager.sense(np.full((32, 32), 128, np.uint8))
        >>> phi = TernaryOperator(imager.patterns, (32, 32))
        >>> phi.shape
        (256, 1024)
        >>> shortest = lsqr(phi, y.values.ravel())[0].reshape(32, 32)
    """

    def __init__(
        self, patterns: Patterns, size: tuple[int, int], dtype: type[np.floating] = np.float64
    ) -> None:
        self.size = int(size[0]), int(size[1])
        if min(self.size) < 1:
            raise ValueError(f"an image has at least one pixel, not {size[0]}×{size[1]}")
        phi = torch.from_numpy(patterns.phi.astype(dtype))
        self.operator = SensingOperator(phi, patterns.stride)
        self.grid = len(patterns), *self.operator.geometry.grid(*self.size)
        super().__init__(dtype, (int(np.prod(self.grid)), self.size[0] * self.size[1]))

    def _matmat(self, images: NDArray[np.floating]) -> NDArray[np.floating]:
        return self.operator.forward(self._columns(images, self.size)).flatten(1).T.numpy()

    def _rmatmat(self, measured: NDArray[np.floating]) -> NDArray[np.floating]:
        y = self._columns(measured, self.grid)
        return self.operator.adjoint(y, self.size).flatten(1).T.numpy()

    def _rmatvec(self, measured: NDArray[np.floating]) -> NDArray[np.floating]:
        return self._rmatmat(measured.reshape(-1, 1))[:, 0]

    def _columns(self, matrix: NDArray[np.floating], shape: tuple[int, ...]) -> Tensor:
        """Return the columns of a matrix as images or measurements of the operator's type."""
        if np.iscomplexobj(matrix):
            raise TypeError("images and measurements are real; take real and imaginary parts")
        return torch.from_numpy(np.ascontiguousarray(matrix.T, self.dtype)).view(-1, *shape)
