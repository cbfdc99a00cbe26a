"""How good a reconstruction is: PSNR and SSIM (`metrics`), by two `protocols`."""

from tersense.evaluation.metrics import psnr, ssim
from tersense.evaluation.protocols import Score, evaluate_folder, score_image

__all__ = ["Score", "evaluate_folder", "psnr", "score_image", "ssim"]
