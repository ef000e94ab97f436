"""Recurrent layers of Transformers that compute something else when a prompt is cut, mended in place."""

import math
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from engine_adapters.embedded.state.model_call import CACHE_ARGUMENTS
from engine_adapters.embedded.state.scans import LimitedStep, StartingScan

# Functions that a model's code calls by name: for several tokens (Jamba, Zamba), and for one (Zamba2, Nemotron-H).
_SCAN, _STEP = "mamba_selective_scan", "mamba2_selective_state_update"
_NO_LIMITS = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class _Call:
    """What the functions have to know of the layer that calls them."""

    starts: Iterator[
        torch.Tensor
    ]  # its state before: for each head in turn, where the scan is called for each
    limits: tuple[float, float]  # of its time steps


_calls: ContextVar[_Call | None] = ContextVar("kvgate_mixer_call", default=None)


def mend_mixers(model: torch.nn.Module) -> None:
    """Make the Mamba layers of a model go on from their state as if a prompt had never been cut.

    Where Transformers has other code than is known here nothing happens: it is to be tried whether a model goes on
    from its states.
    """
    for mixer in model.modules():
        if not hasattr(mixer, "A_log"):
            continue
        code: Any = sys.modules[type(mixer).__module__]
        if not hasattr(code, _SCAN) and not hasattr(code, _STEP):
            continue
        _mend(code)
        mixer.register_forward_pre_hook(_begin, with_kwargs=True)
        mixer.register_forward_hook(_end, always_call=True)


def _mend(code: Any) -> None:
    """Once for a module of Transformers: outside the layers of mended models its functions do as they did."""
    scan, step = getattr(code, _SCAN, None), getattr(code, _STEP, None)
    if scan is not None and not isinstance(scan, StartingScan):
        setattr(code, _SCAN, StartingScan(scan, _next_start))
    if step is not None and not isinstance(step, LimitedStep):
        setattr(code, _STEP, LimitedStep(step, _limits))


def _begin(mixer: Any, _: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    cache = next((keywords[name] for name in CACHE_ARGUMENTS if name in keywords), None)
    state = None if cache is None else cache.layers[mixer.layer_idx].recurrent_states[0]
    limits = getattr(mixer, "time_step_limit", None) or _NO_LIMITS
    _calls.set(_Call(iter(()) if state is None else _heads(state), (limits[0], limits[1])))


def _end(*_: Any) -> None:
    _calls.set(None)


def _heads(state: torch.Tensor) -> Iterator[torch.Tensor]:
    """Each [rows, channels, n] of a state that may have heads between rows and channels."""
    return iter(state.unbind(1) if state.dim() == 4 else (state,))


def _next_start() -> torch.Tensor | None:
    call = _calls.get()
    return None if call is None else next(call.starts, None)


def _limits() -> tuple[float, float]:
    call = _calls.get()
    return _NO_LIMITS if call is None else call.limits
