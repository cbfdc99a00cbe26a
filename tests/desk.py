"""A folder with one good input of every kind, and what may be mistaken for it."""

import json
import os

import h5py
import numpy as np

from cameras import adaptive_imager
from conftest import build_small_imager
from tersense.export.base import export
from tersense.io.images import write_image
from tersense.models.files import write_model
from tersense.models.plans import RoundSettings, write_round

CONFIG = """
[sensing]
window = 8
stride = 8
[reconstructor]
name = "mlp"
hidden = [8]
[data]
train = "pictures"
crop = 8
samples = 64
[train]
out = "run"
epochs = 1
batch = 16
device = "cpu"
"""


def lay_out(folder):
    """Make good inputs, and in `bad` what looks like them."""
    rng, imager = np.random.default_rng(1), build_small_imager()
    image = rng.integers(0, 256, (12, 20), dtype=np.uint8)
    write_image(folder / "photo.png", image)
    for name in ("pictures", "bad"):
        (folder / name).mkdir()
    for name in ("a.png", "b.png"):
        write_image(folder / "pictures" / name, image)
    write_model(folder / "small.safetensors", imager)
    measured = imager.sense(image)
    measured.save(folder / "y.tsm")
    np.save(folder / "counts.npy", np.full((2, 3), 7))
    measured.quantized(bits=6).save(folder / "steps.tsm")
    np.savetxt(folder / "table.csv", measured.values.reshape(16, -1).T, "%d", ",")
    export("c", imager, folder / "export")
    (folder / "export/manifest.json").rename(folder / "manifest.json")
    adaptive = adaptive_imager()
    write_model(folder / "adaptive.safetensors", adaptive)
    capture = adaptive.begin((12, 20), 0.2)
    settings = RoundSettings("adaptive.safetensors", 12, 20, 0.2, 3)
    write_round(folder / "round", adaptive, capture, capture.next(), settings)
    (folder / "values.csv").write_text("1,2\n3,4\n")
    (folder / "config.toml").write_text(CONFIG)
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    figures = {"model": "m-r10", "data": "d", "protocol": "p", "mean": {"psnr": 30.0}}
    for name, rate in (("result.json", 0.1), ("other.json", 0.2)):
        (folder / name).write_text(json.dumps(figures | {"rate": rate}))
    with h5py.File(folder / "patches.h5", "w") as file:
        file["patches"] = rng.integers(0, 256, (3, 64), dtype=np.uint8)
    damage(folder)


def damage(folder):
    """Put beside every kind of input what may be mistaken for it."""
    bad, noise = folder / "bad", np.random.default_rng(2).bytes(3000)
    originals = {path.suffix: path for path in folder.iterdir() if path.is_file()}
    for suffix in ("", *originals):
        content = originals[suffix].read_bytes() if suffix else noise
        (bad / f"empty{suffix}").touch()
        (bad / f"cut{suffix}").write_bytes(content[: len(content) // 2])
        (bad / f"text{suffix}").write_text("It was a dark and stormy night.\n")
        (bad / f"noise{suffix}").write_bytes(noise)
        (bad / f"dangling{suffix}").symlink_to("nowhere")
        (bad / f"loop{suffix}").symlink_to(f"loop{suffix}")
        (bad / f"folder{suffix}").mkdir()
        os.mkfifo(bad / f"pipe{suffix}")
