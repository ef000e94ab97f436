"""Forward passes of a hybrid model: prompts one by one, decoding sequences together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention import AttentionBackend, Segment, Step, attending
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from engine_adapters.embedded.state.hybrid_step import HybridStep
from engine_adapters.embedded.state.layout import StateLayout
from engine_adapters.embedded.state.model_call import call_model


class HybridModel:
    """A model over a device tier and over the states that its segments bring.

    A recurrent layer mixes all tokens of a row, so that sequences cannot be packed into one as attention allows.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layout: StateLayout,
        tier: DeviceTier,
        windows: Sequence[int | None],
        kv_layers: Mapping[int, int],
        keeps_logits: bool,
    ) -> None:
        self._model = model
        self._layout = layout
        self._tier = tier
        self._windows = windows
        self._kv_layers = kv_layers
        self._last: dict[str, Any] = {"logits_to_keep": 1} if keeps_logits else {}

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], backend: AttentionBackend) -> torch.Tensor:
        """Logits [segments with `sample`, vocab] in the order of the segments; states move on by their tokens.

        Raises:
            ValueError: a segment's state does not stand for the tokens before it.
        """
        states = [_state_of(segment) for segment in segments]
        alone = [i for i, s in enumerate(segments) if s.size > 1 or not s.past]
        together = [i for i in range(len(segments)) if i not in set(alone)]
        found: dict[int, torch.Tensor] = {}
        for i in alone:
            for piece in self._pieces(segments[i]):
                found[i] = self._run([piece], [states[i]], backend, self._last)[0, -1]
        if together:
            logits = self._run([segments[i] for i in together], [states[i] for i in together], backend, {})
            found.update((i, logits[row, -1]) for row, i in enumerate(together))
        wanted = [found[i] for i, segment in enumerate(segments) if segment.sample]
        return torch.stack(wanted).float() if wanted else next(iter(found.values())).new_empty((0, 0)).float()

    @torch.inference_mode()
    def forward_all(self, segment: Segment, backend: AttentionBackend) -> torch.Tensor:
        """Logits of all tokens of one segment: float32 [n, vocab]."""
        state = _state_of(segment)
        logits = [self._run([piece], [state], backend, {})[0] for piece in self._pieces(segment)]
        return torch.cat(logits).float()

    def _pieces(self, segment: Segment) -> list[Segment]:
        """What of a segment the model can compute at once."""
        if not (self._layout.single_steps and segment.past and segment.size > 1):
            return [segment]
        return [
            replace(
                segment,
                tokens=segment.tokens[i : i + 1],
                past=segment.past + i,
                arrival=None if i else segment.arrival,  # the first has waited for all of its layers
            )
            for i in range(segment.size)
        ]

    def _run(
        self,
        segments: Sequence[Segment],
        states: Sequence[AuxiliaryState],
        backend: AttentionBackend,
        keywords: dict[str, Any],
    ) -> torch.Tensor:
        """One segment of any size, or some of one token each: logits [segments, n or 1, vocab]."""
        step = HybridStep(segments, self._tier, self._windows, backend, self._kv_layers)
        tokens, positions = self._inputs(segments, step)
        cache = self._layout.load(states)
        with attending(step):
            logits = call_model(self._model, tokens, positions, cache, **keywords)
        self._layout.store(cache, states, [segment.length for segment in segments])
        return logits

    def _inputs(self, segments: Sequence[Segment], step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        rows, device = len(segments), self._tier.device
        tokens = torch.cat([torch.from_numpy(segment.tokens.astype("int64")) for segment in segments])
        positions = torch.from_numpy(step.layout.positions)
        return tokens.view(rows, -1).to(device), positions.view(rows, -1).to(device)


def _state_of(segment: Segment) -> AuxiliaryState:
    state = AuxiliaryState() if segment.state is None else segment.state
    if state.length != segment.past:
        raise ValueError(f"a state of {state.length} tokens cannot go on behind {segment.past}")
    return state
