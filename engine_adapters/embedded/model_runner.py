"""Runs a Transformers model over the paged device tier: segments in, logits out."""

import inspect
import logging
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from cache_core.device_tier import DeviceTier
from cache_core.native import NativeBuildError, SpanCopy, load_span_copy
from engine_adapters.embedded.attention import (
    AttentionBackend,
    NativeBackend,
    Segment,
    Step,
    TorchBackend,
    attending,
)
from engine_adapters.embedded.attention.choice import choose_gpu_backend
from engine_adapters.embedded.cache_sizes import cache_sizes
from engine_adapters.embedded.fast_linear import speed_up_linears
from engine_adapters.embedded.model_loading import (
    context_length,
    eos_token_ids,
    load_model,
    probe_layers,
)
from engine_adapters.embedded.models import cache_dir
from engine_adapters.embedded.native import load_native
from engine_adapters.embedded.state.hybrid_model import HybridModel
from engine_adapters.embedded.state.probe import probe_state
from engine_adapters.embedded.unsupported import UnsupportedModelError, trial

__all__ = ["ModelRunner", "Segment"]

_log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_MAX_HOST_KV = 4 << 30  # bytes taken on a CPU unless told otherwise
_HOST_SHARE, _GPU_SHARE = 0.5, 0.85  # of the memory that is free once the weights are loaded


class ModelRunner:
    """One loaded model and its KV. Not locked: one thread at a time calls it."""

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        block_size: int = 16,
        num_blocks: int | None = None,
        kv_bytes: int | None = None,
        folder: Path | None = None,
        backend: AttentionBackend | None = None,
    ) -> None:
        """Wrap a model that was loaded with our attention. `num_blocks` wins over `kv_bytes`.

        Raises:
            UnsupportedModelError: see `probe_layers`.
        """
        self._model = model
        first = next(model.parameters())
        self.device, dtype = first.device, first.dtype
        config: Any = model.config
        with trial(str(config.model_type)):
            self.state = probe_state(model)  # what hybrid models keep beside KV; None: KV is all
            specs = probe_layers(model, self.state)
        self._windows = tuple(spec.window for spec in specs)
        self.position_config = _position_config(model, self._windows)
        budget = _kv_budget(self.device) if kv_bytes is None else kv_bytes
        layouts = [spec.layout for spec in specs]
        sizes = cache_sizes(layouts, self.state, block_size, dtype, budget, num_blocks)
        self.snapshot_bytes, self.state_share = sizes.snapshot_bytes, sizes.state_share
        span_copy = _span_copy() if self.device.type == "cpu" else None
        self.kv = DeviceTier(sizes.layouts, sizes.num_blocks, block_size, dtype, self.device, span_copy)
        if not specs:
            for tensor in (*self.kv.keys, *self.kv.values):
                tensor.zero_()  # nobody writes to them, and they go to tiers below
        self.context_length = min(context_length(config) or self.kv.num_slots, self.kv.num_slots)
        self.vocab_size = int(config.get_text_config(decoder=True).vocab_size)
        self.eos_token_ids = eos_token_ids(model, folder)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.backend = backend or _best_backend(model, self.kv, [spec.heads for spec in specs])
        self._hybrid: HybridModel | None = None
        if self.state is not None:
            kv_layers = {spec.layer: at for at, spec in enumerate(specs)}
            self._hybrid = HybridModel(model, self.state, self.kv, self._windows, kv_layers, self._keeps)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        kv_bytes: int | None = None,
        block_size: int = 16,
        num_blocks: int | None = None,
        trust_remote_code: bool = False,
        threads: int | None = None,
    ) -> "ModelRunner":
        """Load from a local folder. `dtype` auto: float32 on a CPU, else what the weights have.

        `kv_bytes` None: a share of the memory that is free once the weights are there. `threads` is torch's
        setting for the whole process.

        Raises:
            UnsupportedModelError: the model cannot run over paged KV.
            OSError: the folder holds no complete model.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        where = _device(device)
        model = load_model(
            Path(folder), device=where, dtype=_dtype(dtype, where), trust_remote_code=trust_remote_code
        )
        return cls(
            model, block_size=block_size, num_blocks=num_blocks, kv_bytes=kv_bytes, folder=Path(folder)
        )

    @property
    def num_blocks(self) -> int:
        return self.kv.num_blocks

    @property
    def block_size(self) -> int:
        return self.kv.block_size

    @property
    def threads(self) -> int:
        return torch.get_num_threads()

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        """Compute all new tokens in one packed pass and write their KV, on an accelerator some time later.

        Returns:
            float32 logits [segments with `sample`, vocab], in the order of the segments.
        """
        if self._hybrid is not None:
            return self._hybrid.forward(segments, self.backend)
        ends = np.cumsum([segment.size for segment in segments]) - 1
        wanted = np.array([segment.sample for segment in segments], dtype=bool)
        return self._run(segments, ends[wanted])

    def synchronize(self) -> None:
        """Wait until an accelerator has computed what it was given; `forward` returns before that.

        Raises:
            RuntimeError: it failed, so the KV of what it was given is worth nothing.
        """
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def forward_all(self, segment: Segment) -> torch.Tensor:
        """Like `forward`, for one segment, with the logits of all its tokens: [n, vocab]."""
        if self._hybrid is not None:
            return self._hybrid.forward_all(segment, self.backend)
        return self._run([segment], np.arange(segment.size))

    def other_weights(self, folder: Path, trust_remote_code: bool = False) -> torch.nn.Module:
        """The model of another folder, in main memory, for `take_weights`.

        Raises:
            OSError, ValueError: it cannot be loaded.
            UnsupportedModelError: it has other weights by name, shape or kind of number.
        """
        dtype = next(self._model.parameters()).dtype
        cpu = torch.device("cpu")
        other = load_model(folder, device=cpu, dtype=dtype, trust_remote_code=trust_remote_code)
        ours, theirs = self._model.state_dict(), other.state_dict()
        odd = [name for name in ours.keys() | theirs.keys() if not _alike(ours.get(name), theirs.get(name))]
        if odd:
            raise UnsupportedModelError(
                f"these weights do not fit the loaded model: {', '.join(sorted(odd)[:3])}",
                "Load a checkpoint of the same architecture and dtype, or start a server of its own for it.",
            )
        return other

    @torch.inference_mode()
    def take_weights(self, other: torch.nn.Module) -> None:
        """Overwrite this model's weights in place with those of one from `other_weights`.

        KV computed before is worth nothing afterwards.
        """
        theirs = other.state_dict()
        for name, weight in self._model.state_dict().items():
            weight.copy_(theirs[name])

    def warm_up(self) -> None:
        """Run a few tokens so that the first request finds everything built. Overwrites block 0."""
        size = min(4, self.block_size)
        segment = Segment(np.zeros(size, dtype=np.int32), 0, np.zeros(1, dtype=np.int32), sample=True)
        self.forward([segment])

    @torch.inference_mode()
    def _run(self, segments: Sequence[Segment], keep: np.ndarray[Any, np.dtype[np.int64]]) -> torch.Tensor:
        step = Step(segments, self.kv, self._windows, self.backend)
        tokens = np.concatenate([segment.tokens for segment in segments]).astype(np.int64)
        rows = torch.from_numpy(keep).to(self.device)
        extra: dict[str, Any] = {"logits_to_keep": rows} if self._keeps else {}
        with attending(step):
            logits: torch.Tensor = self._model(
                input_ids=torch.from_numpy(tokens).to(self.device)[None],
                position_ids=torch.from_numpy(step.layout.positions).to(self.device)[None],
                use_cache=False,
                **extra,
            ).logits[0]
        return (logits if self._keeps else logits[rows]).float()


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.dtype == other.dtype


def _best_backend(model: torch.nn.Module, kv: DeviceTier, heads: Sequence[int]) -> AttentionBackend:
    """The kernels that serve here; on a CPU for the model's linear layers, too."""
    if kv.device.type == "cuda":
        return choose_gpu_backend(kv, heads) if heads else TorchBackend()
    library = load_native() if NativeBackend.serves(kv.dtype, kv.device) else None
    if library is None:
        return TorchBackend()
    speed_up_linears(model, library)
    return NativeBackend(library)


@cache
def _span_copy() -> SpanCopy | None:
    """The copy that moves scattered blocks to and from colder tiers at memory speed; None: torch does it."""
    try:
        return load_span_copy(cache_dir(os.environ) / "native")
    except (NativeBuildError, OSError) as error:
        _log.warning("no native copy, blocks move between tiers more slowly: %s", error)
        return None


def _position_config(model: torch.nn.Module, windows: Sequence[int | None]) -> dict[str, str]:
    """What decides how positions enter keys, and which keys are seen: part of what makes KV interchangeable."""
    config: Any = model.config
    text = config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None) or {}
    stated = {"rope": repr(sorted(rope.items(), key=str)), "windows": repr(tuple(windows))}
    by_kind = [each for each in rope.values() if isinstance(each, dict)] or [rope]
    if any(_scales_with_context(each) for each in by_kind):
        stated["context"] = repr(getattr(text, "max_position_embeddings", None))
    return stated


def _scales_with_context(rope: dict[str, Any]) -> bool:
    """Whether the model's context length enters its keys, which else it does not: a scale is made of it."""
    kind = rope.get("rope_type")
    return kind == "dynamic" or (kind in ("yarn", "longrope") and rope.get("factor") is None)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype | str:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    try:
        return _DTYPES[name]
    except KeyError:
        raise ValueError(f"dtype {name} is none of auto, {', '.join(_DTYPES)}") from None


def _kv_budget(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _GPU_SHARE)
    return min(int(psutil.virtual_memory().available * _HOST_SHARE), _MAX_HOST_KV)
