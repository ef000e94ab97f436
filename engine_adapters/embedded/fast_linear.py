"""Linear layers for few rows at memory speed: torch's own are poor at 2 to 16 rows of float32."""

import torch
import torch.nn.functional as F

from engine_adapters.embedded.native import NativeLibrary

_MAX_ROWS = 32  # more rows: torch's matrix product is faster


def speed_up_linears(model: torch.nn.Module, library: NativeLibrary) -> int:
    """Route every float32 CPU linear layer of few rows through the native kernel; weights stay where they are.

    Returns how many layers were changed.
    """
    changed = 0
    for module in model.modules():
        if type(module) is torch.nn.Linear and _fits(module.weight, module.bias):
            module.forward = _FewRows(module, library)  # type: ignore[method-assign, assignment]
            changed += 1
    return changed


def _fits(weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    return all(
        each.dtype == torch.float32 and each.device.type == "cpu" and each.is_contiguous()
        for each in (weight, bias)
        if each is not None
    )


class _FewRows:
    """Callable in place of one layer's forward."""

    __slots__ = ("_bias", "_limit", "_native", "_weight")

    def __init__(self, module: torch.nn.Linear, library: NativeLibrary) -> None:
        self._weight, self._bias = module.weight, module.bias
        self._limit = _MAX_ROWS * module.in_features
        self._native = library.linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if 0 < x.numel() <= self._limit and x.is_contiguous() and x.dtype is torch.float32:
            return self._native(x, self._weight, self._bias)
        return F.linear(x, self._weight, self._bias)
