"""Transformers' own forward and generate, with its own cache and attention."""

import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.generation.streamers import BaseStreamer


class TransformersPeer:
    """The same weights through Transformers alone, float32, its default attention."""

    name = "Transformers"

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        ).eval()
        self._model.generation_config.eos_token_id = None
        self._filled: DynamicCache | None = None
        self._prefix: NDArray[np.int32] | None = None

    @torch.inference_mode()
    def prefill(self, tokens: NDArray[np.int32]) -> float:
        """Seconds of one cold forward with a new cache and the last token's logits."""
        ids = _batch(tokens)
        started = time.perf_counter()
        self._model(
            input_ids=ids, cache=DynamicCache(config=self._model.config), use_cache=True, logits_to_keep=1
        )
        return time.perf_counter() - started

    @torch.inference_mode()
    def fill(self, prefix: NDArray[np.int32]) -> None:
        """Keep the KV of `prefix` for `continue_with` and `decode_rate`."""
        self._filled = DynamicCache(config=self._model.config)
        self._prefix = prefix
        self._model(input_ids=_batch(prefix), cache=self._filled, use_cache=True, logits_to_keep=1)
        if self._filled.get_seq_length() != len(prefix):  # under another name the cache would stay empty
            raise RuntimeError("this version of Transformers did not fill the cache that it was given")

    @torch.inference_mode()
    def continue_with(self, tokens: NDArray[np.int32]) -> float:
        """Seconds of one forward of `tokens` on the filled cache."""
        cache = self._cache()
        ids = _batch(tokens)
        started = time.perf_counter()
        self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
        elapsed = time.perf_counter() - started
        cache.crop(-len(tokens))
        return elapsed

    @torch.inference_mode()
    def decode_rate(self, new_tokens: int) -> float:
        """Tokens a second of `generate` on the filled cache, the first token's time left out."""
        cache = self._cache()
        assert self._prefix is not None, "fill first"
        clock = _Clock()
        ids = _batch(np.append(self._prefix, self._prefix[-1]))
        before = cache.get_seq_length()
        self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            cache=cache,
            max_new_tokens=new_tokens,
            do_sample=False,
            streamer=clock,
        )
        cache.crop(before - cache.get_seq_length())
        times = clock.times[1:]  # the first call carries the prompt
        return (len(times) - 1) / (times[-1] - times[0])

    def _cache(self) -> DynamicCache:
        assert self._filled is not None, "fill first"
        return self._filled


class _Clock(BaseStreamer):  # type: ignore[misc]
    """Notes when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        return


def _batch(tokens: NDArray[np.int32]) -> torch.Tensor:
    return torch.from_numpy(tokens.astype(np.int64))[None]
