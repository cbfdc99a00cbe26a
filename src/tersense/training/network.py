"""The camera in training: sensor and reconstructor as one network, with its loss.

pixels ──normalise──▶ x ──Φ──▶ y ──reconstructor──▶ x̂,   loss = mean over crops of ‖x − x̂‖²

The paper's loss is the squared one; absolute errors (Charbonnier) suit stronger reconstructors, and
their logarithm cameras that learn several rates at once: errors at 1 % are ten times those at 50 %,
and would decide alone where the network goes.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.models.camera import NetworkCamera
from tersense.models.files import build_reconstructor
from tersense.models.imager import Imager
from tersense.runtime import distributed
from tersense.sensing.nesting import LOWEST_SHARE, most_telling_first
from tersense.sensing.operator import Geometry, SensingOperator
from tersense.sensing.patterns import FixedSensor, read_patterns
from tersense.sensing.sensors import DenseSensor
from tersense.sensing.ternary import Selection, TernarySensor
from tersense.training.config import Config, SensingConfig

_SMOOTH = 1e-3  # below this the Charbonnier loss is a squared one; in deviations of the pixels


class JointNetwork(nn.Module):
    """The camera in training: sensor and reconstructor, end to end.

    Args:
        config: Settings of the sensor and the reconstructor.
        mean: μ of the training pixels.
        std: σ of the training pixels.
    """

    def __init__(self, config: Config, mean: float, std: float) -> None:
        super().__init__()
        sensing = config.sensing
        self.mean, self.std = mean, std
        self.l2, self.loss = config.train.l2, config.train.loss
        self.sensor = _build_sensor(sensing)
        options = dict(config.reconstructor)
        self.reconstructor = build_reconstructor(
            options.pop("name"),
            options,
            Geometry(sensing.window, sensing.stride),
            len(self.sensor.theta),
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the loss of crops (N, H, V) uint8."""
        x = (pixels.float() - self.mean) / self.std
        phi, alpha = self.sensor()
        if self.training and self.reconstructor.any_rate:
            phi = phi * _some_first_rows(phi)
        operator = SensingOperator(phi, self.sensor.stride, alpha)
        estimate = self.reconstructor(operator.forward(x), operator, x.shape[-2:])
        loss = self._compare(x, estimate.float())
        if self.l2:
            matrices = (w for w in self.reconstructor.parameters() if w.ndim > 1)
            loss = loss + 0.5 * self.l2 * sum(w.square().sum() for w in matrices)
        return loss

    def _compare(self, x: Tensor, estimate: Tensor) -> Tensor:
        squares = (x - estimate).square()
        if self.loss == "squared":
            return squares.sum() / len(x)
        absolute = (squares + _SMOOTH**2).sqrt().mean()
        if self.loss == "charbonnier":
            return absolute
        # log(absolute); where several processes share a batch, their mean is the log of its mean.
        whole = distributed.mean_over_batch(absolute.detach(), len(x))
        return absolute / whole - 1 + whole.log()

    @torch.no_grad()
    def start_from(self, imager: Imager) -> None:
        """Take over a trained reconstructor, and its patterns as far as they fit."""
        ours, theirs = self.reconstructor, imager.reconstructor
        try:
            if ours.registered_name != theirs.registered_name:
                raise RuntimeError("another network")
            ours.load_state_dict(theirs.state_dict())
        except RuntimeError as error:
            raise TersenseError(
                f"{imager.name} has the reconstructor {theirs.registered_name} with "
                f"{theirs.options} for {len(imager.patterns)} patterns of "
                f"{imager.patterns.window}×{imager.patterns.window}; its weights do not fit "
                f"{ours.registered_name} with {ours.options} for {len(self.sensor.theta)} of "
                f"{self.sensor.window}×{self.sensor.window}"
            ) from error
        if not isinstance(self.sensor, FixedSensor):
            patterns, alpha = imager.patterns, imager.operator.alpha
            if ours.any_rate and not theirs.any_rate:
                order = most_telling_first(patterns)
                patterns, alpha = patterns.in_order(order), alpha[torch.from_numpy(order)]
            self.sensor.start_from(patterns, alpha)

    @torch.no_grad()
    def to_camera(self, name: str, about: dict[str, Any]) -> NetworkCamera:
        """Return the camera as it is now; it shares the reconstructor's weights.

        A ternary camera is an `Imager`; a dense one can be evaluated, but has no model file.
        """
        phi, alpha = self.sensor()
        if isinstance(self.sensor, DenseSensor):
            operator = SensingOperator(phi.clone(), self.sensor.stride, alpha)
            return NetworkCamera(name, operator, self.mean, self.std, self.reconstructor)
        patterns = self.sensor.freeze()
        return Imager(
            name, patterns, alpha, self.mean, self.std, self.reconstructor, about, phi.device
        )


def _some_first_rows(phi: Tensor) -> Tensor:
    """Return (m, 1, 1): 1 for the first patterns, as many as a random rate has, 0 for the rest.

    Rates from the lowest to the full one are drawn, low ones as often as high ones.
    """
    share = LOWEST_SHARE ** torch.rand((), device=phi.device)
    first = torch.arange(len(phi), device=phi.device) < (share * len(phi)).ceil()
    return first[:, None, None].to(phi.dtype)


def _build_sensor(sensing: SensingConfig) -> TernarySensor | DenseSensor | FixedSensor:
    window, stride, rate = sensing.window, sensing.stride, sensing.rate
    if sensing.kind == "fixed":
        return FixedSensor(read_patterns(sensing.patterns, stride), sensing.scale == "learned")
    if sensing.kind == "float":
        return DenseSensor(window, stride, rate)
    return TernarySensor(
        window,
        stride,
        rate,
        sensing.density,
        cast(Selection, sensing.selection),
        learn=sensing.kind == "ternary",
        learned_scale=sensing.scale == "learned",
    )
