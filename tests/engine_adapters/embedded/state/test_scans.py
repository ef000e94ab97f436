"""A scan that goes on from a state, and a step within limits, against the recurrence written out."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.embedded.state.scans import LimitedStep, StartingScan


def written_out(
    start: torch.Tensor,
    inputs: torch.Tensor,
    steps: torch.Tensor,
    decay: torch.Tensor,
    write: torch.Tensor,
    read: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs [rows, channels, T] and the last state, token by token, of steps as they are."""
    state, outputs = start, []
    for t in range(inputs.shape[-1]):
        step = steps[:, :, t, None]
        state = torch.exp(decay * step) * state + step * write[:, None, :, t] * inputs[:, :, t, None]
        outputs.append((state * read[:, None, :, t]).sum(-1))
    return torch.stack(outputs, -1), state


def from_nothing(
    inputs: torch.Tensor,
    steps: torch.Tensor,
    decay: torch.Tensor,
    write: torch.Tensor,
    read: torch.Tensor,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    if delta_bias is not None:
        steps = steps + delta_bias[:, None]
    if delta_softplus:
        steps = F.softplus(steps)
    nothing = torch.zeros(inputs.shape[0], *decay.shape)
    output, last = written_out(nothing, inputs, steps, decay, write, read)
    output = output if z is None else output * F.silu(z)
    return (output, last) if return_last_state else output


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 3),
    size=st.integers(1, 9),
    gated=st.booleans(),
    biased=st.booleans(),
    last=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_scan_goes_on_from_any_state(
    rows: int, size: int, gated: bool, biased: bool, last: bool, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    start = torch.randn(rows, 5, 4, generator=draw)
    inputs, raw = torch.randn(2, rows, 5, size, generator=draw)
    write, read = torch.randn(2, rows, 4, size, generator=draw)
    decay = -torch.rand(5, 4, generator=draw)
    gate = torch.randn(rows, 5, size, generator=draw) if gated else None
    bias = torch.randn(5, generator=draw) if biased else None
    steps = F.softplus(raw if bias is None else raw + bias[:, None])
    expected, state = written_out(start, inputs, steps, decay, write, read)
    expected = expected if gate is None else expected * F.silu(gate)
    scan = StartingScan(from_nothing, lambda: start)
    keywords = {"z": gate, "delta_bias": bias, "delta_softplus": True, "return_last_state": last}
    found = scan(inputs, raw, decay, write, read, **keywords)
    outputs = found[0] if last else found
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    if last:
        torch.testing.assert_close(found[1], state, rtol=1e-4, atol=1e-5)


def test_a_scan_without_a_state_is_left_as_it_is() -> None:
    inputs, steps, rows = torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.ones(1, 4, 3)
    decay = -torch.ones(2, 4)
    scan = StartingScan(from_nothing, lambda: None)
    assert torch.equal(scan(inputs, steps, decay, rows, rows), from_nothing(inputs, steps, decay, rows, rows))


@pytest.mark.parametrize("limits", [(0.001, math.inf), (0.0, 0.5), (0.01, 0.2), (0.0, math.inf), (0.0, 1e4)])
def test_a_step_keeps_the_limits(limits: tuple[float, float]) -> None:
    given_steps: list[torch.Tensor] = []

    def step(state: Any, inputs: Any, steps: Any, *others: Any, dt_bias: Any, dt_softplus: bool) -> None:
        given_steps.append(F.softplus(steps + dt_bias))

    raw = torch.linspace(-20, 20, 12).view(2, 6, 1).expand(2, 6, 3)
    bias = torch.linspace(-1, 1, 6)[:, None].expand(6, 3)
    LimitedStep(step, lambda: limits)(None, None, raw, dt_bias=bias, dt_softplus=True)
    expected = F.softplus(raw + bias).clamp(*limits)
    torch.testing.assert_close(given_steps[0], expected, rtol=1e-5, atol=0)
