"""The transfer bench moves what it says it moves."""

import pytest
import torch

from bench import transfer
from cache_core.device_tier import LayerLayout


@pytest.mark.parametrize("native", [True, False])
def test_a_tiny_run_has_all_figures(native: bool) -> None:
    layout = LayerLayout(1, 8, 8)
    figures = transfer.run(torch.device("cpu"), 2, layout, torch.float32, blocks=4, rounds=1, native=native)
    assert figures.total_bytes == 4 * 2 * layout.width * transfer.BLOCK_SIZE * 4
    assert min(figures.up, figures.down, figures.big_up, figures.big_down) > 0
    assert figures.up_share == figures.up / figures.big_up
    assert native or not figures.native
