"""The camera in deepinv: as physics for its solvers, and our networks for its evaluation.

    x in 0 … 1 ──scale·Φ──▶ noise model ──▶ sensor model ──▶ y (N, C, m, h, w) ──any solver──▶ x̂

deepinv's images lie between 0 and 1 and its operators have norm 1, so that its solvers take the
same steps for all of them; `TernaryPhysics.scale` leads from there to the integers of a camera.
Where windows have counts of their own, what was not measured is zero in y and no part of A.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tersense.errors import TersenseError, install_hint, one_line
from tersense.interop.noise import for_each, ranged, readouts_of
from tersense.measurements import color
from tersense.measurements.counts import check_counts
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import WHOLE_RANGE, Readout
from tersense.models.imager import Imager
from tersense.reconstruction.solvers.least_squares import least_squares
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

# deepinv imports torchvision, whose compiled part may not load beside a CPU build of torch.
# Declaring the two operators that it then misses is enough; neither is ever called here.
try:
    import torchvision  # noqa: F401
except ImportError:  # deepinv says what it misses
    pass
except RuntimeError:
    for _operator in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # declared by somebody else
            torch.library.define(
                f"torchvision::{_operator}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
try:
    from deepinv.models import Reconstructor
    from deepinv.physics import LinearPhysics, NoiseModel, ZeroNoise
except ImportError as error:
    raise TersenseError(
        f"interop.deepinv needs deepinv: {install_hint('deepinv')} ({one_line(error)})"
    ) from error
except RuntimeError as error:  # torchvision was built for another torch
    raise TersenseError(
        f"deepinv cannot be imported: {one_line(error)}; install the torchvision that belongs to "
        f"torch {torch.__version__}"
    ) from error

_WHITE = 255.0


class TernaryPhysics(LinearPhysics):  # type: ignore[misc]
    """Ternary sensing of images of one size, as a `deepinv.physics.LinearPhysics`.

    Args:
        patterns: The patterns, as `imager.patterns` holds them.
        img_size: (C, H, W) of the images.
        normalize: Scale Φ to norm 1; otherwise y is Φx, with x between 0 and 1.
        noise_model: `ReadoutNoise`, or one of deepinv, whose σ counts in units of y. A sensor's
            noise of s pixel values is σ = s·scale/255.
        sensor_model: What the readout does to y; see `ReadoutModel`. None for nothing.
        device: Where to compute.
        counts: How many of its first rows each window is measured with, integers (h, w) or
            (C, h, w), as `measurements.counts` holds them; None for all rows. The scale is that of
            all rows in any case, so that the norm is at most 1.

    `phi` (m, B, B) and `counts` are buffers: `physics.update(phi=…)` exchanges the patterns, and
    `physics.update(counts=…)` the counts, which may then differ from image to image, (N, C, h, w).

    Example:
        >>> import tersense, torch
        >>> from tersense.interop.deepinv import TernaryPhysics
        >>> imager = tersense.load("paper-r25")
        >>> physics = TernaryPhysics(imager.patterns, (1, 64, 80))
        >>> physics(torch.rand(2, 1, 64, 80)).shape
        torch.Size([2, 1, 256, 2, 3])
    """

    phi: Tensor
    scale: Tensor
    counts: Tensor | None

    def __init__(
        self,
        patterns: Patterns,
        img_size: tuple[int, int, int],
        normalize: bool = True,
        noise_model: NoiseModel | None = None,
        sensor_model: Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device = "cpu",
        counts: Any = None,
    ) -> None:
        if len(img_size) != 3 or min(img_size) < 1:
            raise ValueError(f"img_size is (channels, height, width), not {tuple(img_size)}")
        super().__init__(
            img_size=tuple(img_size),
            noise_model=noise_model or ZeroNoise(),
            sensor_model=sensor_model or nn.Identity(),
        )
        self.stride = patterns.stride
        self.register_buffer("phi", torch.from_numpy(patterns.phi.astype(np.float32)))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("counts", None)
        if normalize:
            self.scale = 1 / self._norm()
        if counts is not None:
            channels = img_size[:1] if img_size[0] > 1 else ()
            grid = Geometry(patterns.window, patterns.stride).grid(*img_size[1:])
            checked = check_counts(counts, (*channels, len(patterns), *grid))
            self.counts = torch.from_numpy(checked).long()
        self.to(device)

    def A(self, x: Tensor, counts: Tensor | None = None, **others: Any) -> Tensor:  # noqa: N802
        """Sense images x (N, C, H, W) of values 0 to 1: return y (N, C, m, h, w).

        Counts that are given stay, as parameters do in deepinv.
        """
        self.update_parameters(counts=counts)
        if x.shape[1:] != self.img_size:
            raise ValueError(f"this physics senses {self.img_size}, not {tuple(x.shape[1:])}")
        return self._measured(self.scale.to(x.dtype) * self._operator(x.dtype).forward(x))

    def forward(self, x: Tensor, counts: Tensor | None = None, **others: Any) -> Tensor:
        """Sense images x (N, C, H, W) with noise and readout; see `ReadoutNoise`."""
        self.update_parameters(counts=counts)
        if isinstance(self.noise_model, ReadoutNoise) and self.noise_model.readout.photons:
            lit = SensingOperator(self.phi.abs().to(x.dtype), self.stride)
            others["light"] = self.scale.to(x.dtype) * lit.forward(x)
        y: Tensor = super().forward(x, **others)
        return y

    def sensor(self, y: Tensor) -> Tensor:
        """Read y (N, C, m, h, w) out, as far as it was measured; the rest is zero."""
        ranges = isinstance(self.sensor_model, ReadoutModel)
        return self._measured(self.sensor_model(y, self._which()) if ranges else super().sensor(y))

    def A_adjoint(  # noqa: N802
        self, y: Tensor, counts: Tensor | None = None, **others: Any
    ) -> Tensor:
        """Spread measurements y (N, C, m, h, w) over images (N, C, H, W)."""
        self.update_parameters(counts=counts)
        operator, size = self._operator(y.dtype), self.img_size[1:]
        return self.scale.to(y.dtype) * operator.adjoint(self._measured(y), size)

    def A_dagger(  # noqa: N802
        self,
        y: Tensor,
        solver: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        **others: Any,
    ) -> Tensor:
        """Return the Moore–Penrose inverse of y (N, C, m, h, w), images (N, C, H, W).

        Args:
            y: (N, C, m, h, w).
            solver: As deepinv passes it; there is nothing to choose here.
            max_iter: For lapped windows and for counts, the most steps of conjugate gradients.
            tol: For them, the error in the normal equations to stop at.
            others: As deepinv passes them.
        """
        limits = {"max_steps": max_iter, "tolerance": tol, "measured": self._which()}
        given: Any = {name: limit for name, limit in limits.items() if limit is not None}
        x = least_squares(self._operator(y.dtype), y, self.img_size[1:], **given)
        return x / self.scale.to(y.dtype)

    def from_camera(self, measurements: Measurements) -> Tensor:
        """Turn what a camera read out into y (1, C, m, h, w) of this physics."""
        header = measurements.header
        here = Patterns(self.phi.to(torch.int8).cpu().numpy(), self.stride)
        if header.mode == color.MODE:
            raise TersenseError(
                "these measurements are of brightness and color differences, but a physics has "
                "channels; sense the image without --bpp and --quality"
            )
        size = (header.channels, header.height, header.width)
        if (header.phi, header.stride, size) != (here.hash, here.stride, self.img_size):
            raise TersenseError(
                f"these measurements are of {size} pixels, every {header.stride}, with patterns "
                f"{header.phi[:12]}…, but this physics of {self.img_size}, every {here.stride}, "
                f"with {here.hash[:12]}…; use the patterns and the size that sensed them"
            )
        own = None if self.counts is None else self.counts.cpu().numpy()
        if not _same_counts(own, measurements.counts):
            raise TersenseError(
                "counts per window must be those of the physics, got others; "
                "build it with counts=measurements.counts"
            )
        values = torch.from_numpy(header.readout.values(measurements.values))
        y = values.reshape(1, size[0], *values.shape[-3:]).to(self.phi)
        return self._measured(y) * self.scale / _WHITE

    def to_camera(self, y: Tensor) -> Tensor:
        """Turn y (N, C, m, h, w) of this physics into sums of pixels of 0 to 255."""
        return y * (_WHITE / self.scale.to(y.dtype))

    def _which(self) -> Tensor | None:
        """Return which values of y are measured, (…, m, h, w), or None for all."""
        if self.counts is None:
            return None
        rows = torch.arange(len(self.phi), device=self.phi.device)
        return rows[:, None, None] < self.counts[..., None, :, :]

    def _measured(self, y: Tensor) -> Tensor:
        which = self._which()
        return y if which is None else y * which

    def _operator(self, dtype: torch.dtype) -> SensingOperator:
        return SensingOperator(self.phi.to(dtype), self.stride)

    def _norm(self) -> Tensor:
        """Return the norm of Φ: of blocks exactly, of lapped windows by the power method."""
        operator, size = self._operator(torch.float64), self.img_size[1:]
        if operator.geometry.cells == 1:
            shapes = [shape for _, _, shape in operator.geometry.block_kinds(size)]
            blocks = [operator.phi[:, :height, :width].flatten(1) for height, width in shapes]
            norm = torch.stack([torch.linalg.matrix_norm(block, 2) for block in blocks]).max()
            return norm.to(self.phi.dtype)
        self.scale = 1 / self.phi.norm()  # for deepinv's tolerance, which is absolute
        with torch.random.fork_rng(devices=[]):  # drawing a start must not disturb the caller
            torch.manual_seed(0)
            start = torch.zeros(1, *self.img_size)
            square = self.compute_sqnorm(start, max_iter=500, tol=1e-6, verbose=False)
        lapped: Tensor = square.sqrt() / self.scale
        return lapped


class ReadoutNoise(NoiseModel):  # type: ignore[misc]
    """A noise model: the light and the noise of a readout, before its converter.

    A pattern is shown as two exposures. The noise of each is that of deepinv's
    `PoissonGaussianNoise` with a gain of unit/photons; `TernaryPhysics` tells how much light each
    measurement took, which y alone does not say.

    Args:
        physics: The camera.
        readout: Its photons and its noise, in pixel values.
        rng: As in deepinv.

    Example:
        >>> physics.noise_model = ReadoutNoise(physics, Readout(photons=2.0))  # doctest: +SKIP
    """

    def __init__(
        self, physics: TernaryPhysics, readout: Readout, rng: torch.Generator | None = None
    ) -> None:
        super().__init__(rng=rng)
        self.readout, self.unit = readout, float(physics.scale) / _WHITE

    def forward(
        self, y: Tensor, light: Tensor | None = None, seed: int | None = None, **others: Any
    ) -> Tensor:
        """Disturb y (N, C, m, h, w), given |Φ|x in the same units and of the same shape."""
        self.rng_manual_seed(seed)
        if self.readout.photons:
            if light is None:
                raise ValueError("shot noise needs light, |Φ|x: sense by physics(x)")
            gain = self.unit / self.readout.photons
            exposures = (light + y) / 2, (light - y) / 2
            positive, negative = (
                torch.poisson((e / gain).clamp(min=0), generator=self.rng) for e in exposures
            )
            y = (positive - negative) * gain
        noisy: Tensor = y + self.randn_like(y) * (self.readout.noise * self.unit)
        return noisy


class ReadoutModel(nn.Module):
    """A sensor model: the converter of a readout.

    It does in deepinv what `imager.sense(image, readout=…)` does to integers, `ReadoutNoise`
    included: sums are rounded to whole pixel values first.

    Args:
        physics: The camera.
        readout: The readout; or its bits, at least 2, each pattern ranged for each image.

    Example:
        >>> physics.sensor_model = ReadoutModel(physics, 8)  # doctest: +SKIP
    """

    def __init__(self, physics: TernaryPhysics, readout: Readout | int) -> None:
        super().__init__()
        self.readout = readout if isinstance(readout, Readout) else Readout.ranging(readout)
        self.unit = float(physics.scale) / _WHITE  # what y has for one pixel value

    def forward(self, y: Tensor, which: Tensor | None = None) -> Tensor:
        """Round y (N, C, m, h, w) to what the readout can tell apart.

        Args:
            y: (N, C, m, h, w).
            which: What was measured of it; None for all.
        """
        sums = (y / self.unit).round()
        pairs = zip(sums, for_each(which, y), strict=True)
        return torch.stack([self._convert(*pair) for pair in pairs]) * self.unit

    def _convert(self, sums: Tensor, which: Tensor | None) -> Tensor:
        final = ranged(self.readout, sums, which)
        return final.values(final.quantize(sums))


class TernaryReconstructor(Reconstructor):  # type: ignore[misc]
    """The network of a camera as a `deepinv.models.Reconstructor`.

    Args:
        imager: The camera. Its weights are shared, not copied: deepinv can train them further.

    Example:
        >>> import tersense, torch
        >>> from tersense.interop.deepinv import TernaryPhysics, TernaryReconstructor
        >>> imager = tersense.load("paper-r25")
        >>> physics = TernaryPhysics(imager.patterns, (1, 64, 80))
        >>> model = TernaryReconstructor(imager)
        >>> model(physics(torch.rand(1, 1, 64, 80)), physics).shape
        torch.Size([1, 1, 64, 80])
    """

    def __init__(self, imager: Imager) -> None:
        super().__init__(device=imager.device)
        self.camera = imager.camera

    def forward(self, y: Tensor, physics: TernaryPhysics, **others: Any) -> Tensor:
        """Reconstruct images (N, C, H, W), about 0 to 1, from y (N, C, m, h, w)."""
        if not isinstance(physics, TernaryPhysics):
            raise TypeError(
                f"{self.camera.name} reconstructs from TernaryPhysics, not {type(physics)}"
            )
        operator = self.camera.operator
        if physics.stride != operator.geometry.stride or not torch.equal(physics.phi, operator.phi):
            raise TersenseError(
                f"{self.camera.name} was trained with other patterns than this physics senses "
                "with; build both from the same imager"
            )
        size, sums = physics.img_size[1:], physics.to_camera(y)
        counts = physics.counts
        if counts is not None:
            counts = counts.expand(*y.shape[:2], *y.shape[-2:])
        readouts = _readouts_of(physics, sums)
        if len(readouts) == 1:
            x = self.camera.reconstruct_batch(sums, size, readouts[0], counts)
        else:  # every image has errors of its own
            of_each = zip(
                sums, readouts, [None] * len(y) if counts is None else counts, strict=True
            )
            x = torch.stack([self.camera.reconstruct_batch(s, size, r, c) for s, r, c in of_each])
        return x / _WHITE


def _readouts_of(physics: TernaryPhysics, sums: Tensor) -> list[Readout]:
    """Return what is known of the errors of sums (N, C, m, h, w): one for all images, or for each.

    Nobody has kept the steps that an image was ranged with, but codes reach as far as the steps
    allow: the lowest and the highest of each pattern tell its step.
    """
    noise, sensor = physics.noise_model, physics.sensor_model
    unit = float(physics.scale) / _WHITE
    told = isinstance(noise, ReadoutNoise)
    noises = [noise.readout] if told else readouts_of(noise, unit)
    converter = sensor.readout if isinstance(sensor, ReadoutModel) else Readout()
    known = [replace(converter, noise=n.noise, photons=n.photons) for n in noises]
    if not converter.percentile:
        return known
    known = known * len(sums) if len(known) == 1 else known
    of_each = zip(known, sums, for_each(physics._which(), sums), strict=True)
    return [ranged(replace(r, percentile=WHOLE_RANGE), s.round(), w) for r, s, w in of_each]


def _same_counts(own: Any, theirs: Any) -> bool:
    if own is None or theirs is None:
        return own is theirs
    return bool((own == theirs).all())
