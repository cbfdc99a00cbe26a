"""Learn from a teacher: a small network is trained to give what a larger one gives.

    x ──Φ──▶ y ─┬─▶ teacher ──▶ t, features
                └─▶ student ──▶ x̂, features ──▶ (1 − share)·d(x, x̂) + share·d(t, x̂) + features

Both get the same measurements, with the same counts and errors. Much of an image cannot be known
from its measurements, and would pull a small network to and fro; what the teacher makes of them
can be learned. The camera, Φ and the normalization of its pixels, is the teacher's and does not
change. Nothing else of the teacher is in the student's model, nor is the convolution that turns the
features of one into those of the other.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tersense.models.imager import Imager
from tersense.reconstruction.base import Reconstructor
from tersense.sensing.operator import SensingOperator
from tersense.training.config import TeacherConfig

Measured = tuple[Tensor, SensingOperator, tuple[int, int], Tensor | None, Tensor | None]


class Distillation(nn.Module):
    """The loss of a student; its weights are the convolution between the features.

    Args:
        settings: How much the teacher's results weigh.
        teacher: The trained camera; it is not a part of this module.
        student: Which network learns from it.
        distance: Of two batches of images, the usual loss.
    """

    def __init__(
        self,
        settings: TeacherConfig,
        teacher: Imager,
        student: Reconstructor,
        distance: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.settings, self.distance = settings, distance
        self.teacher = teacher  # no module: neither trained, nor in checkpoints
        if settings.features:
            ours, theirs = student.options.channels, teacher.reconstructor.options.channels
            self.translation = nn.Conv2d(ours, theirs, 1)

    def forward(self, x: Tensor, student: Reconstructor, measured: Measured) -> Tensor:
        """Return the loss of images x (N, H, W).

        Args:
            x: Normalized.
            student: The network; gradients flow to it.
            measured: What a reconstructor is given: y, the camera, the size, errors and counts.
        """
        estimate, features = self._look(student, measured)
        # The same camera, but the teacher's own object: it finds the inverse for it only once.
        y, _, size, deviation, counts = measured
        with torch.no_grad():
            known = y, self.teacher.operator, size, deviation, counts
            target, wanted = self._look(self.teacher.reconstructor, known)
        share = self.settings.share
        loss = (1 - share) * self.distance(x, estimate) + share * self.distance(target, estimate)
        if features is not None and wanted is not None:
            loss = loss + self.settings.features * self._strangeness(features, wanted)
        return loss

    def _look(self, network: Reconstructor, measured: Measured) -> tuple[Tensor, Tensor | None]:
        """Reconstruct; return the feature maps too, where they count."""
        if not self.settings.features:
            return network(*measured).float(), None
        estimate, features = network.examine(*measured)
        return estimate.float(), features

    def _strangeness(self, features: Tensor, wanted: Tensor) -> Tensor:
        """Return how far the student's features are from the teacher's, as a share of these."""
        wanted = wanted.float()
        missed: Tensor = self.translation(features) - wanted
        return missed.square().mean() / wanted.square().mean()
