"""A kernel that is wrong on some GPU is never used there."""

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch

from cache_core.device_tier import DeviceTier, LayerLayout
from engine_adapters.embedded.attention import AttentionBackend, LayerCall, TorchBackend
from engine_adapters.embedded.attention.choice import checked, choose_gpu_backend
from engine_adapters.embedded.attention.self_check import Shape
from engine_adapters.embedded.attention.step import StepLayout

CPU = torch.device("cpu")
SHAPE = Shape(6, LayerLayout(2, 64, 64), 16, torch.bfloat16)


class Right(TorchBackend):
    name = "right"


class BlindToWindows(Right):
    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> Any:
        return super().plan(layout, tier, None)


class MissesTheNewestKey(Right):
    """Of the sequence that has no past every output is right, since there is no other key."""

    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> Any:
        spans = tuple(replace(span, end=max(span.end - 1, span.begin + 1)) for span in layout.spans)
        return super().plan(replace(layout, spans=spans), tier, window)


class ForgetsSinks(Right):
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        return super().attend(plan, tier, replace(call, sinks=None))


class ForgetsSoftcaps(Right):
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        return super().attend(plan, tier, replace(call, softcap=None))


class GivesNoNumber(Right):
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        output = super().attend(plan, tier, call)
        output[0, -1, 0, 0] = torch.nan
        return output


class WritesBeside(Right):
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        output = super().attend(plan, tier, call)
        tier.values[0][0, 0] += 1.0
        tier.values[0][0, 0].nan_to_num_(1.0)
        return output


class Raises(Right):
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        raise RuntimeError("no kernel image is available")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_right_backend_is_used(dtype: torch.dtype) -> None:
    assert isinstance(checked(Right, [replace(SHAPE, dtype=dtype)], CPU), Right)


@pytest.mark.parametrize(
    "wrong",
    [
        BlindToWindows,
        MissesTheNewestKey,
        ForgetsSinks,
        ForgetsSoftcaps,
        GivesNoNumber,
        WritesBeside,
        Raises,
    ],
)
def test_a_wrong_backend_is_not_used_and_one_line_says_why(
    wrong: type[AttentionBackend], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert type(checked(wrong, [SHAPE], CPU)) is TorchBackend
    assert len(caplog.records) == 1


def test_a_missing_package_leaves_the_reference(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> AttentionBackend:
        raise ModuleNotFoundError("No module named 'triton'")

    assert type(checked(missing, [SHAPE], CPU)) is TorchBackend
    assert "No module named 'triton'" in caplog.text


def test_a_cpu_is_left_to_the_reference() -> None:
    tier = DeviceTier([SHAPE.layout], 4, 16, torch.float32, CPU)
    assert type(choose_gpu_backend(tier, [6])) is TorchBackend
