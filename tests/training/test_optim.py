"""The optimizer for weight matrices."""

import pytest
import torch
from torch import nn

from tersense.training.checkpoint import read_checkpoint, write_checkpoint
from tersense.training.optim import Muon, orthogonalized


@pytest.mark.parametrize("shape", [(3, 8, 20), (2, 20, 8), (1, 6, 6)])
def test_all_singular_values_come_near_one_and_directions_stay(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    result = orthogonalized(matrices)
    assert (torch.linalg.svdvals(result) - 1).abs().max() < 0.35
    exact = u @ v
    assert (result - exact).norm() < 0.35 * exact.norm()


def test_a_matrix_that_never_had_a_gradient_stays_finite():
    assert torch.equal(orthogonalized(torch.zeros(1, 4, 5)), torch.zeros(1, 4, 5))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))


def train(net, steps, optimizer=None):
    groups = [{"params": list(net.parameters()), "matrices": True}]
    optimizer = optimizer or Muon(groups, lr=torch.tensor(0.02))
    losses = []
    for step in range(steps):
        inputs = torch.randn(16, 1, 6, 6, generator=torch.Generator().manual_seed(step))
        wanted = torch.stack([inputs.sum((1, 2, 3)), inputs[:, 0, 0, 0], inputs[:, 0, 5, 1]], 1)
        loss = (net(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer


def test_it_learns_a_linear_map():
    losses, _ = train(network(), 150)
    assert sum(losses[-20:]) < 0.1 * sum(losses[:20])


def test_biases_move_as_with_adam():
    net, twin = network(), network()
    train(net, 1)
    adam = torch.optim.Adam(twin.parameters(), lr=0.02)
    train(twin, 1, adam)
    torch.testing.assert_close(net[1].bias, twin[1].bias)
    assert not torch.equal(net[1].weight, twin[1].weight)


def test_a_checkpoint_brings_back_its_state(tmp_path):
    straight = network()
    train(straight, 6)
    stopped = network()
    _, optimizer = train(stopped, 3)
    write_checkpoint(tmp_path / "c.safetensors", stopped, optimizer, {})
    resumed = network()
    fresh = Muon([{"params": list(resumed.parameters()), "matrices": True}], lr=torch.tensor(0.02))
    read_checkpoint(tmp_path / "c.safetensors", resumed, fresh)
    for step in (3, 4, 5):  # the data of steps 3 to 5
        inputs = torch.randn(16, 1, 6, 6, generator=torch.Generator().manual_seed(step))
        wanted = torch.stack([inputs.sum((1, 2, 3)), inputs[:, 0, 0, 0], inputs[:, 0, 5, 1]], 1)
        fresh.zero_grad()
        (resumed(inputs) - wanted).square().mean().backward()
        fresh.step()
    for key, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (16, 16)])
def test_matrices_move_as_with_torchs_own_muon(shape):
    """torch's takes 2-D weights only, and orthogonalizes in bfloat16: the same steps, rounded."""
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(shape, generator=generator)
    ours, theirs = (nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (
        Muon([{"params": [ours], "matrices": True}], lr=torch.tensor(0.02)),
        torch.optim.Muon([theirs], lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(8):
        gradient = torch.randn(shape, generator=generator)
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    way = theirs.detach() - start
    assert (ours.detach() - start - way).norm() < 0.02 * way.norm()
