"""Trained cameras: sense, reconstruct, load, save, share.

`imager` is the camera on whole images, `camera` the same on batches of tensors; `files` reads and
writes model files, `zoo` finds the built-in ones (`weights/`), `hub` shares them, `info` describes
them.
"""

from tersense.models.camera import Camera
from tersense.models.hub import from_pretrained
from tersense.models.imager import Imager
from tersense.models.zoo import load

__all__ = ["Camera", "Imager", "from_pretrained", "load"]
