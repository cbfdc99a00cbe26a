"""Train a camera in a loop of your own: [torchrun --nproc-per-node=2] own_loop.py FOLDER STEPS."""

import sys

import torch
from torch import Tensor, distributed, nn

import tersense
from tersense.evaluation.metrics import psnr
from tersense.io.images import PHOTOGRAPH, find_images, read_gray
from tersense.models.files import write_model
from tersense.reconstruction import build_reconstructor
from tersense.sensing import Geometry, SensingOperator, TernarySensor
from tersense.training.losses import charbonnier

BATCH, OUT, SIZE = 16, "own.safetensors", {"phases": 2, "channels": 16}
together = distributed.is_torchelastic_launched()
if together:
    distributed.init_process_group("gloo")
rank, ranks = (distributed.get_rank(), distributed.get_world_size()) if together else (0, 1)


class Joint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sensor = TernarySensor(window=16, stride=16, rate=0.25, density=0.05)
        self.network = build_reconstructor("unrolled", SIZE, Geometry(16, 16), rows=64)

    def forward(self, x: Tensor) -> Tensor:
        phi, alpha = self.sensor()  # (m, B, B) of −1, 0, +1; (m,)
        operator = SensingOperator(phi, self.sensor.stride, alpha)
        return self.network(operator(x), operator, x.shape[-2:])  # (N, H, W), as x

    def to_imager(self, mean: float, std: float) -> tersense.Imager:
        _, alpha = self.sensor()
        return tersense.Imager("own", self.sensor.freeze(), alpha, mean, std, self.network)


images = [torch.from_numpy(read_gray(path)) for path in find_images(sys.argv[1])]
cut = [image.unfold(0, 48, 24).unfold(1, 48, 24).reshape(-1, 48, 48) for image in images]
crops, photograph = torch.cat(cut).float(), read_gray(PHOTOGRAPH)
std, mean = map(float, torch.std_mean(crops))
torch.manual_seed(0)  # the same weights in every process …
joint = Joint()
before = psnr(joint.to_imager(mean, std).capture(photograph).estimate, photograph)
model = nn.parallel.DistributedDataParallel(joint) if together else joint
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
torch.manual_seed(rank)  # … and crops of its own for each
for _ in range(int(sys.argv[2])):
    x = (crops[torch.randint(len(crops), (BATCH // ranks,))] - mean) / std
    optimizer.zero_grad()
    charbonnier(x, model(x)).backward()
    optimizer.step()
if rank == 0:
    write_model(OUT, joint.to_imager(mean, std))
    after = psnr(tersense.load(OUT).capture(photograph).estimate, photograph)
    print(f"{before:.2f} dB before, {after:.2f} dB after; {OUT} is written")
if together:  # nobody leaves before the others are done
    distributed.barrier()
    distributed.destroy_process_group()
