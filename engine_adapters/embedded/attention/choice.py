"""Which backend computes attention on a GPU."""

import logging
from collections.abc import Callable, Iterable, Sequence

import torch

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention.self_check import Shape, fault
from engine_adapters.embedded.attention.step import AttentionBackend
from engine_adapters.embedded.attention.torch_backend import TorchBackend

_log = logging.getLogger(__name__)


def choose_gpu_backend(tier: DeviceTier, heads: Sequence[int]) -> AttentionBackend:
    """Triton's kernels where they give the reference's results on this device, else the reference.

    `heads[layer]` is that layer's number of query heads. Takes the seconds the kernels take to compile.
    """
    if tier.device.type != "cuda":
        return TorchBackend()
    shapes = {
        Shape(count, layout, tier.block_size, tier.dtype)
        for count, layout in zip(heads, tier.layers, strict=True)
    }
    return checked(_triton_backend, shapes, tier.device)


def checked(
    make: Callable[[], AttentionBackend], shapes: Iterable[Shape], device: torch.device
) -> AttentionBackend:
    """What `make` makes, if it is right for layers of these shapes; else the reference, and a line why."""
    try:
        backend = make()
        reason = fault(backend, shapes, device)
    except Exception as error:  # noqa: BLE001 - whatever a compiler or a driver raises, the reference serves
        reason = f"{type(error).__name__}: {error}"
    if reason is None:
        _log.info("attention on %s: the %s kernels, checked", device, backend.name)
        return backend
    _log.warning("attention on %s: plain torch, since the kernels do not serve: %s", device, reason)
    return TorchBackend()


def _triton_backend() -> AttentionBackend:
    from engine_adapters.embedded.attention.triton_backend import TritonBackend  # triton may be missing

    return TritonBackend()
