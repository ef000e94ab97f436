"""Watermarks of each tier reach what sweeps it."""

from dataclasses import replace

import pytest

from cache_core.tiered import Watermarks
from engine_adapters.embedded.cold_config import Marks
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.test_cold_tiers import config, running

__all__ = ["config"]  # the fixture


def test_marks_of_a_tier_reach_the_sweeper(config: EmbeddedConfig) -> None:
    with running(replace(config, watermarks={"disk": Marks(0.95, 0.9)})) as adapter:
        sweeper = adapter._sweeper
        assert sweeper is not None
        assert sweeper._marks_of("disk") == Watermarks(0.95, 0.9)
        assert sweeper._marks_of("host") == sweeper._marks_of("device") == Watermarks(0.85, 0.70)


@pytest.mark.parametrize("marks", [(0.5, 0.6), (1.1, 0.5), (0.5, -0.1)])
def test_marks_are_shares_in_order(marks: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no higher"):
        Marks(*marks)
