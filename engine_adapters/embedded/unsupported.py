"""The refusal of a model that this engine cannot run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine_adapters.errors import EngineError

_LONGEST_REASON = 300  # characters of what a model's own code said

_OTHER_ENGINE = (
    "Serve it with SGLang, vLLM or llama.cpp, where one knows it, behind the gateway: docs/engines.md."
)


class UnsupportedModelError(EngineError):
    """The model cannot run over paged KV; the message says which model, why, and what to do instead.

    Args:
        why: begins with the model's type where that is known.
    """

    def __init__(self, why: str, instead: str = _OTHER_ENGINE) -> None:
        super().__init__(f"{why}. {instead}")
        self.why = why
        self.instead = instead


@contextmanager
def trial(name: str) -> Iterator[None]:
    """The code of a model of type `name` runs for the first time: where it fails, that is the reason of a refusal."""
    try:
        yield
    except UnsupportedModelError as error:
        if error.why.startswith(name):
            raise
        raise UnsupportedModelError(f"{name}: {error.why}") from error
    except (EngineError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
        raise UnsupportedModelError(f"{name}: its code failed in a trial run ({reason})") from error
