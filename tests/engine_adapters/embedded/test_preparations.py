"""Transformers' own bars stay off the terminal while a model loads, and come back; absent devices are refused."""

import pytest

torch = pytest.importorskip("torch")
transformers_logging = pytest.importorskip("transformers.utils.logging")

from engine_adapters.embedded.preparations import (  # noqa: E402
    UnusableDeviceError,
    check_device,
    no_progress_bars,
)


@pytest.mark.parametrize("shown", [True, False])
def test_bars_are_off_inside_and_as_before_afterwards(shown: bool) -> None:
    was = transformers_logging.is_progress_bar_enabled()
    switch = {
        True: transformers_logging.enable_progress_bar,
        False: transformers_logging.disable_progress_bar,
    }
    try:
        switch[shown]()
        with no_progress_bars():
            assert not transformers_logging.is_progress_bar_enabled()
        assert transformers_logging.is_progress_bar_enabled() is shown
    finally:
        switch[was]()


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_what_is_always_there_is_taken(name: str) -> None:
    check_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused_with_the_next_step(name: str) -> None:
    with pytest.raises(UnusableDeviceError, match="--device cpu"):
        check_device(name)
