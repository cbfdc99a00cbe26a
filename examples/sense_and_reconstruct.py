"""Sense a photograph, keep the measurements as a file, and give the image back.

python examples/sense_and_reconstruct.py [PHOTOGRAPH] [--model block-r25] [--bits 10]
"""

import argparse
from pathlib import Path

import tersense
from tersense.evaluation.metrics import psnr, ssim
from tersense.io.images import PHOTOGRAPH, read_image, write_image

parser = argparse.ArgumentParser(description="Sense a photograph and give it back.")
parser.add_argument("photograph", nargs="?", type=Path, default=PHOTOGRAPH)
parser.add_argument("--model", default="block-r25", help="a built-in name or a model file")
parser.add_argument("--bits", type=int, help="model a readout of so many bits")
options = parser.parse_args()

# The camera: integers, no multiplication.
imager = tersense.load(options.model)
image = read_image(options.photograph)
imager.sense(image, bits=options.bits).save("image.tsm")

# Later, elsewhere: only the file and the model are needed.
measurements = tersense.Measurements.load("image.tsm")
again = imager.reconstruct(measurements)
write_image("again.png", again)

print(f"{imager}")
print(f"{image.size:,} pixel values became {measurements.values.size:,} measurements")
print(f"{measurements.bits_per_pixel:.2f} bits per pixel of each channel, instead of 8")
print(f"{psnr(again, image):.2f} dB, SSIM {ssim(again, image):.4f}; see again.png")
