"""Sense a photograph, keep the measurements as a file, and give the picture back.

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

# The camera: whole numbers, no multiplication.
imager = tersense.load(options.model)
picture = read_image(options.photograph)
imager.sense(picture, bits=options.bits).save("picture.tsm")

# Later, elsewhere: only the file and the model are needed.
measurements = tersense.Measurements.load("picture.tsm")
again = imager.reconstruct(measurements)
write_image("again.png", again)

print(f"{imager}")
print(f"{picture.size:,} pixel values became {measurements.values.size:,} measurements")
print(f"{measurements.bits_per_pixel:.2f} bits a pixel of each channel, instead of 8")
print(f"{psnr(again, picture):.2f} dB, SSIM {ssim(again, picture):.4f}; see again.png")
