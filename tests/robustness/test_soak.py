"""The soaks in short: every answer is checked as in the long form (`make soak`), memory is not."""

import sys

import pytest

from long import soak_app, soak_batch
from long.memory import growth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def test_the_page_serves_good_and_bad_guests():
    figures = soak_app.soak(50)
    assert figures["requests"] == 50
    assert figures["answered"] > 20
    assert figures["refused"] > 5


def test_batches_with_bad_files_lose_no_work():
    figures = soak_batch.soak(60)
    assert set(figures) == {"sense", "reconstruct", "evaluate"}
    assert figures["sense"]["failed"] > 0


def test_growth_is_told_from_noise():
    assert growth([100.0, 300.0, *[200.0, 202.0, 198.0] * 10]) == pytest.approx(0, abs=0.011)
    assert growth([200.0 + step for step in range(100)]) > 0.3
