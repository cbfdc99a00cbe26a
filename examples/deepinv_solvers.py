"""Reconstruct the same measurements by deepinv's solvers and by our network.

.venv/bin/pip install -c constraints.txt -e '.[deepinv]'
python examples/deepinv_solvers.py [OUT.png]
"""

import sys
import time

import numpy as np
import torch

import tersense
from tersense.evaluation.metrics import psnr
from tersense.interop.deepinv import TernaryPhysics, TernaryReconstructor
from tersense.io.figures import draw_sheet
from tersense.io.images import PHOTOGRAPH, read_gray, to_pixels, write_image

import deepinv as dinv  # isort: skip (behind ours, which lets it load beside a CPU build of torch)

SIZE = 128
torch.set_num_threads(1)  # the images are small; more threads only wait for each other

# The camera takes its measurements: exact integers, as hardware would read them out.
imager = tersense.load("block-r25")
image = read_gray(PHOTOGRAPH)[60 : 60 + SIZE, 120 : 120 + SIZE]
measurements = imager.sense(image)

# For deepinv they are measurements of a linear physics.
physics = TernaryPhysics(imager.patterns, (1, SIZE, SIZE))
y = physics.from_camera(measurements)


def solver(prior: dinv.optim.Prior, weight: float, iterations: int) -> dinv.optim.BaseOptim:
    """Return FISTA for ½‖Ax − y‖² + weight·prior(x), begun at the pseudoinverse."""
    return dinv.optim.FISTA(
        data_fidelity=dinv.optim.L2(),
        prior=prior,
        lambda_reg=weight,
        stepsize=1.0,  # the operator has norm 1
        max_iter=iterations,
        custom_init=lambda y, physics: (physics.A_dagger(y), physics.A_dagger(y)),
    )


methods = {
    "pseudoinverse": lambda y, physics: physics.A_dagger(y),
    "wavelets (db4)": solver(dinv.optim.WaveletPrior(wv="db4", level=4), 2e-2, 100),
    "total variation": solver(dinv.optim.TVPrior(n_it_max=10), 3e-3, 250),
    "tersense": TernaryReconstructor(imager),
}


def enlarged(pixels: np.ndarray) -> np.ndarray:
    return pixels.repeat(2, axis=0).repeat(2, axis=1)


sheet = [("original", enlarged(image))]
for name, method in methods.items():
    began = time.perf_counter()
    with torch.no_grad():
        estimate = method(y, physics)[0, 0].numpy()
    seconds = time.perf_counter() - began
    quality = psnr(np.clip(255 * estimate, 0, 255), image)
    print(f"{name:16} {quality:6.2f} dB {seconds:6.1f} s")
    sheet.append((f"{name}, {quality:.2f} dB", enlarged(to_pixels(255 * estimate))))

if len(sys.argv) > 1:
    write_image(sys.argv[1], draw_sheet([sheet]))
