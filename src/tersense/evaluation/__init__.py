"""How good a reconstruction is: PSNR and SSIM (`metrics`), by two `protocols`."""

from tersense.evaluation.metrics import psnr, ssim
from tersense.evaluation.protocols import Captured, Score, evaluate_folder, score_image

__all__ = ["Captured", "Score", "evaluate_folder", "psnr", "score_image", "ssim"]
