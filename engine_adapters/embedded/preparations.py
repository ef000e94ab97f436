"""What is done around the loading of a model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers.utils import logging as transformers_logging

from engine_adapters.errors import EngineError


class UnusableDeviceError(EngineError):
    """The device that was asked for is not here; the message says why and what to do."""


def check_device(name: str) -> None:
    """Refuse a GPU that is not there, before a model is fetched or loaded. Raises UnusableDeviceError."""
    if not name.startswith("cuda") or torch.cuda.is_available():
        return
    built = torch.version.cuda is not None
    reason = "PyTorch finds no GPU" if built else f"PyTorch {torch.__version__} was built without CUDA"
    raise UnusableDeviceError(
        f"{name} cannot be used: {reason}. Take --device cpu, or auto to let kvgate choose"
    )


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep Transformers' own bars off the terminal, where the caller's progress lines are."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
