"""Train a small camera on the images of scikit-image, and look at its patterns.

python examples/train_small_camera.py [--epochs 30] [--samples 100000]
"""

import argparse

from tersense.evaluation.metrics import psnr
from tersense.io.figures import draw_patterns
from tersense.io.images import PHOTOGRAPH, read_image, write_image
from tersense.training.config import build_config
from tersense.training.run import train

parser = argparse.ArgumentParser(description="Train a small camera; about three minutes.")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--samples", type=int, default=100_000, help="crops an epoch")
parser.add_argument("--out", default="runs/small")
options = parser.parse_args()

config = build_config(
    {
        "sensing": {"window": 16, "stride": 16, "rate": 0.25, "density": 0.05},
        "reconstructor": {"name": "mlp", "hidden": [512]},
        "data": {
            "train": "package:skimage/data",
            "crop": 16,
            "samples": options.samples,
            "fresh": True,
            "augment": True,
        },
        "train": {
            "out": options.out,
            "epochs": options.epochs,
            "batch": 500,
            "lr": 0.005,
            "lr_decay_epochs": 3,
            "freeze_epochs": max(1, options.epochs // 3),
        },
    }
)
imager = train(config)

# It is among the images of scikit-image: this shows that it works, not how well.
image = read_image(PHOTOGRAPH)
again = imager.reconstruct(imager.sense(image))
write_image(f"{options.out}/again.png", again)
write_image(f"{options.out}/patterns.png", draw_patterns(imager.phi, 640))
print(f"{imager}: {psnr(again, image):.2f} dB; images and model are in {options.out}")
