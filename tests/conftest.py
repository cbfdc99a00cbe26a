"""What several tests share."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings

from tersense.errors import TersenseError
from tersense.models.imager import Imager
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

# Small tensors gain nothing from more threads and lose much on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
torch.set_num_threads(1)

# What a shell starts in the background ignores these, and so would the programs that tests start
# and interrupt.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# A busy machine is no failure.
settings.register_profile("untimed", deadline=None)
# Whether a changed program fails is all that mutation testing asks, not on which smallest example.
settings.register_profile("mutants", deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("untimed")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2017)


@pytest.fixture
def refused() -> Callable[..., AbstractContextManager[None]]:
    """Expect a TersenseError of one line that contains all the given parts."""

    @contextmanager
    def expect(*parts: object) -> Iterator[None]:
        with pytest.raises(TersenseError) as caught:
            yield
        message = str(caught.value)
        assert message
        assert len(message.splitlines()) == 1
        for part in parts:
            assert str(part) in message

    return expect


def build_small_imager(name: str = "small", seed: int = 0) -> Imager:
    """Build an untrained camera of 16 patterns of 8×8 pixels, with settled batch statistics."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    phi = random.choice(np.array([-1, 0, 1], np.int8), size=(16, 8, 8), p=[0.1, 0.8, 0.1])
    reconstructor = MlpReconstructor(Geometry(8, 8), 16, MlpOptions(hidden=(16,)))
    with torch.no_grad():
        for _ in range(3):
            reconstructor.layers(torch.randn(50, 16) * 3)
    alpha = torch.rand(16) + 0.5
    return Imager(name, Patterns(phi, 8), alpha, 116.18, 68.64, reconstructor, {"data": "none"})


@pytest.fixture
def small_imager() -> Imager:
    return build_small_imager()


@pytest.fixture(scope="session")
def make_imager() -> Callable[..., Imager]:
    return build_small_imager


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "the page is tested in Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
