"""The camera in training: sensor and reconstructor as one network, pixels in, loss out.

pixels ──normalize──▶ x ──Φ──▶ y ──reconstructor──▶ x̂ ──▶ loss

The paper's loss is the mean over crops of ‖x − x̂‖²; `losses` has others, and `distillation` those
that know a teacher.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.models.camera import Camera
from tersense.models.imager import Imager
from tersense.reconstruction.base import Normalization, build_reconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import nested_order, read_patterns
from tersense.sensing.sensors import DenseSensor, FixedSensor
from tersense.sensing.ternary import TernarySensor
from tersense.training.config import Config, SensingConfig
from tersense.training.distillation import Distillation
from tersense.training.draws import draw_counts, draw_readout
from tersense.training.losses import LOSSES, l2_penalty


class JointNetwork(nn.Module):
    """The camera in training: sensor and reconstructor, end to end.

    Args:
        config: Settings of the sensor and the reconstructor.
        mean: μ of the training pixels.
        std: σ of the training pixels.
        teacher: Whom the reconstructor learns from, where `config.teacher` names one.
    """

    def __init__(
        self, config: Config, mean: float, std: float, teacher: Imager | None = None
    ) -> None:
        super().__init__()
        sensing = config.sensing
        self.normalization = Normalization(mean, std)
        self.l2, self.loss = config.train.l2, LOSSES[config.train.loss]
        if teacher is None:
            self.sensor = _build_sensor(sensing)
        else:
            self.normalization = teacher.camera.normalization
            self.sensor = FixedSensor(teacher.patterns, scale=teacher.operator.alpha)
        options = dict(config.reconstructor)
        self.reconstructor = build_reconstructor(
            options.pop("name"),
            options,
            Geometry(sensing.window, sensing.stride),
            len(self.sensor.theta),
        )
        self.distillation: Distillation | None = None
        if teacher is not None:
            self.distillation = Distillation(config.teacher, teacher, self.reconstructor, self.loss)
        self.readout, self.skew = config.readout, config.train.skew
        m = len(self.sensor.theta)
        self.whitening: Tensor | None
        self.register_buffer("whitening", torch.eye(m) if self.reconstructor.any_count else None)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the loss of crops (N, H, W) uint8."""
        x = self.normalization.pixels(pixels.float())
        phi, alpha = self.sensor()
        counts = deviation = None
        if self.training and self.reconstructor.any_count:
            lowest = self._lowest_share()
            counts = draw_counts(x, self.sensor.stride, len(phi), lowest, self.skew)
        elif self.training and self.reconstructor.any_rate:
            phi = phi * _some_first_rows(phi, self._lowest_share())
        operator = SensingOperator(phi, self.sensor.stride, alpha)
        operator.whitening = self.whitening if self.training else None
        # A camera's sums are exact; half precision would add errors of up to ten gray levels.
        with torch.autocast(x.device.type, enabled=False):
            y = operator.forward(x)
            if self.training and self.readout.share:
                y, deviation = draw_readout(x, y, operator, self.normalization, self.readout)
        measured = y, operator, (x.shape[-2], x.shape[-1]), deviation, counts
        if self.training and self.distillation is not None:
            loss: Tensor = self.distillation(x, self.reconstructor, measured)
        else:
            loss = self.loss(x, self.reconstructor(*measured).float())
        if self.l2:
            loss = loss + self.l2 * l2_penalty(self.reconstructor)
        return loss

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute anew what follows Φ only now and then."""
        if self.whitening is not None:
            phi, alpha = self.sensor()
            factor = self.reconstructor.whitening(SensingOperator(phi, self.sensor.stride, alpha))
            if factor is not None:
                self.whitening.copy_(factor)

    def _lowest_share(self) -> float:
        """Return the fewest rows that training uses, as a fraction of all."""
        rate = len(self.sensor.theta) / self.sensor.stride**2
        return min(1.0, self.reconstructor.lowest_rate / rate)

    @torch.no_grad()
    def start_from(self, imager: Imager) -> None:
        """Take over a trained reconstructor, and its patterns as far as they fit."""
        ours, theirs = self.reconstructor, imager.reconstructor
        try:
            if ours.registered_name != theirs.registered_name:
                raise RuntimeError("another network")
            ours.start_from(theirs)
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
                order = nested_order(patterns)
                patterns, alpha = patterns.in_order(order), alpha[torch.from_numpy(order)]
            self.sensor.start_from(patterns, alpha)

    @torch.no_grad()
    def to_camera(self, name: str, about: dict[str, Any]) -> Imager | Camera:
        """Return the camera as it is now; it shares the reconstructor's weights.

        A ternary camera is an `Imager`; a dense one can be evaluated, but has no model file.
        """
        phi, alpha = self.sensor()
        if isinstance(self.sensor, DenseSensor):
            operator = SensingOperator(phi.clone(), self.sensor.stride, alpha)
            return Camera(name, operator, self.normalization, self.reconstructor)
        patterns = self.sensor.freeze()
        return Imager(
            name, patterns, alpha, self.normalization.mean, self.normalization.std,
            self.reconstructor, about, phi.device,
        )  # fmt: skip


def _some_first_rows(phi: Tensor, lowest: float) -> Tensor:
    """Return (m, 1, 1): 1 for the first patterns, as many as a random rate has, 0 for the rest.

    Rates are drawn log-uniformly, from a fraction `lowest` of the full one up to it.
    """
    share = torch.tensor(lowest, device=phi.device) ** torch.rand((), device=phi.device)
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
        sensing.selection,
        learn=sensing.kind == "ternary",
        learned_scale=sensing.scale == "learned",
    )
