"""Transformers' functions for Mamba layers, with what they lack so that a cut in a prompt makes no difference."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


class StartingScan:
    """A selective scan over several tokens that starts from a state, out of one that starts from nothing.

    The recurrence h_t = exp(A dt_t) h_{t-1} + dt_t B_t u_t, y_t = C_t h_t (Mamba, arXiv 2312.00752, section 3) is
    linear in its start: h_0 adds exp(A (dt_1 + ... + dt_t)) h_0 to h_t. So any kernel serves for the rest.

    Args:
        start: gives the state [rows, channels, n] that the next call goes on from, or None.
    """

    def __init__(self, scan: Callable[..., Any], start: Callable[[], torch.Tensor | None]) -> None:
        self._scan = scan
        self._start = start

    def __call__(
        self,
        inputs: torch.Tensor,  # [rows, channels, T], as `steps`
        steps: torch.Tensor,
        decay: torch.Tensor,  # [channels, n]
        write: torch.Tensor,  # [rows, n, T], as `read`
        read: torch.Tensor,
        **keywords: Any,
    ) -> Any:
        found = self._scan(inputs, steps, decay, write, read, **keywords)
        start = self._start()
        if start is None:
            return found
        start, decay, passed = start.float(), decay.float(), _passed(steps, **keywords)
        output, last = found if keywords.get("return_last_state") else (found, None)
        added = _outputs(start, passed, decay, read.float())
        if keywords.get("z") is not None:
            added = added * F.silu(keywords["z"].float())
        output = output + added.to(output.dtype)
        if last is None:
            return output
        return output, last + (torch.exp(passed[..., -1, None] * decay) * start).to(last.dtype)


def _passed(
    steps: torch.Tensor, *, delta_bias: torch.Tensor | None = None, delta_softplus: bool = False, **_: Any
) -> torch.Tensor:
    """How much time has passed after each token: float32 [rows, channels, T]."""
    steps = steps.float()
    if delta_bias is not None:
        steps = steps + delta_bias.float()[:, None]
    return (F.softplus(steps) if delta_softplus else steps).cumsum(-1)


def _outputs(
    start: torch.Tensor, passed: torch.Tensor, decay: torch.Tensor, read: torch.Tensor
) -> torch.Tensor:
    """What the start adds to every output [rows, channels, T]; number by number of a state, to take little memory."""
    added = torch.zeros_like(passed)
    for n in range(start.shape[-1]):
        added += read[:, n, None] * torch.exp(passed * decay[:, n, None]) * start[:, :, n, None]
    return added


class LimitedStep:
    """An update by one token whose time step has the limits that the scan over several tokens puts on it.

    Args:
        limits: gives those of the next call, lowest and highest.
    """

    def __init__(self, step: Callable[..., Any], limits: Callable[[], tuple[float, float]]) -> None:
        self._step = step
        self._limits = limits

    def __call__(
        self,
        state: torch.Tensor,
        inputs: torch.Tensor,
        steps: torch.Tensor,  # [rows, heads, channels], the same in all channels of a head
        *others: Any,
        dt_bias: torch.Tensor,  # [heads, channels], as `steps`
        **keywords: Any,
    ) -> Any:
        assert keywords.get("dt_softplus"), "limits are on a step that is made positive"
        lowest, highest = (_inverse_softplus(limit) for limit in self._limits())
        if lowest > -math.inf or highest < math.inf:
            bias = dt_bias[:, :1].float()
            limited = steps[..., :1].float().clamp(lowest - bias, highest - bias)
            steps = limited.to(steps.dtype).expand_as(steps)
        return self._step(state, inputs, steps, *others, dt_bias=dt_bias, **keywords)


def _inverse_softplus(value: float) -> float:
    if value <= 0:
        return -math.inf
    return value if value > 30 else math.log(math.expm1(value))  # beyond, they differ by less than rounding
