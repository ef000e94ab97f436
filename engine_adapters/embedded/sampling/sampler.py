"""One step of sampling for a whole batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine_adapters.embedded.sampling.draw import draw
from engine_adapters.embedded.sampling.edits import apply_edits, has_edits
from engine_adapters.embedded.sampling.errors import SamplingError
from engine_adapters.embedded.sampling.filters import kept_weights
from engine_adapters.embedded.sampling.logprobs import score
from engine_adapters.embedded.sampling.masks import apply_grammars
from engine_adapters.embedded.sampling.state import SamplingState


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token one sequence goes on with. Log probabilities, where asked for, are of the raw logits."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), most likely first


class Sampler:
    """Chooses one token for each row of a batch.

    The order is: repetition, frequency and presence penalties, logit_bias, bans of end tokens, grammar mask,
    temperature, top_k, top_p, min_p, then one draw. What a row gets depends on its own logits and state,
    never on its neighbours. Rows without extras and with temperature 0 cost one max over the batch.
    """

    @torch.inference_mode()
    def sample(
        self, logits: torch.Tensor, states: Sequence[SamplingState]
    ) -> list[SampledToken | SamplingError]:
        """Choose the next token of every sequence, and advance its state by it.

        `logits`, shape [rows, vocab] float32 on any device, are left unchanged; row i and item i of the
        result belong to `states[i]`. A row that has NaN or +inf, allows no token, or whose grammar breaks
        gives an error in place of a token; its state did not advance and its request must end.
        """
        if not states:
            return []
        step = _Step(logits, states)
        step.check_model()
        step.edit()
        step.choose_greedy()
        step.draw()
        return step.finish()


class _Step:
    """The working values of one call. A row leaves `alive` as soon as it has an error."""

    def __init__(self, logits: torch.Tensor, states: Sequence[SamplingState]) -> None:
        self.raw = logits
        self.work = logits  # becomes a copy before anything is written
        self.states = states
        self.chosen = [0] * len(states)
        self.errors: dict[int, SamplingError] = {}

    def check_model(self) -> None:
        for row, peak in enumerate(self.raw.amax(1).tolist()):
            if not math.isfinite(peak):
                self.errors[row] = SamplingError(f"the model's logits are not finite (highest: {peak})")

    def edit(self) -> None:
        constrained = [(row, s.grammar) for row, s in self._alive() if s.grammar is not None]
        if not constrained and not any(has_edits(state) for state in self.states):
            return
        self.work = self.raw.clone()
        apply_edits(self.work, self.states)
        rows = [(row, grammar, self.states[row].banned) for row, grammar in constrained]
        self.errors.update(apply_grammars(self.work, rows))

    def choose_greedy(self) -> None:
        peaks, ids = self.work.max(1)
        self.peaks = peaks
        self.chosen = ids.tolist()
        for row, peak in enumerate(peaks.tolist()):
            if row not in self.errors and not math.isfinite(peak):
                self.errors[row] = SamplingError(
                    f"no token can be chosen (highest logit after edits: {peak})"
                )

    def draw(self) -> None:
        drawn = [(row, state) for row, state in self._alive() if not state.greedy]
        if not drawn:
            return
        rows = [row for row, _ in drawn]
        picked = _draw(
            self._rows(self.work, rows), self._rows(self.peaks, rows), [state for _, state in drawn]
        )
        for row, token_id in zip(rows, picked, strict=True):
            self.chosen[row] = token_id

    def finish(self) -> list[SampledToken | SamplingError]:
        for row, state in self._alive():
            try:
                state.accept(self.chosen[row])
            except SamplingError as error:
                self.errors[row] = error
        tokens = {row: SampledToken(self.chosen[row]) for row, _ in self._alive()}
        tokens.update(self._scored())
        return [self.errors[row] if row in self.errors else tokens[row] for row in range(len(self.states))]

    def _scored(self) -> dict[int, SampledToken]:
        wanted = {row: k for row, s in self._alive() if (k := s.params.logprobs) is not None}
        if not wanted:
            return {}
        rows = list(wanted)
        ids = [self.chosen[row] for row in rows]
        scores = score(self._rows(self.raw, rows), ids, list(wanted.values()))
        return {
            row: SampledToken(token_id, scored.logprob, scored.top)
            for row, token_id, scored in zip(rows, ids, scores, strict=True)
        }

    def _alive(self) -> list[tuple[int, SamplingState]]:
        return [(row, state) for row, state in enumerate(self.states) if row not in self.errors]

    def _rows(self, tensor: torch.Tensor, rows: list[int]) -> torch.Tensor:
        if len(rows) == len(self.states):
            return tensor
        return tensor[torch.tensor(rows, device=tensor.device)]


def _draw(logits: torch.Tensor, peaks: torch.Tensor, states: Sequence[SamplingState]) -> list[int]:
    temperatures = torch.tensor([[state.params.temperature] for state in states], device=logits.device)
    # The peak goes first: then no temperature, however small, can make anything but 0 of the highest.
    scaled = (logits - peaks[:, None]).div_(temperatures)
    weights = kept_weights(scaled, [state.params for state in states])
    uniforms = torch.tensor([state.uniform() for state in states], dtype=torch.float64, device=logits.device)
    picked: list[int] = draw(weights, uniforms).tolist()
    return picked
