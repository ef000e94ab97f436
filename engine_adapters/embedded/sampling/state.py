"""What one sequence carries from token to token, through batches and preemptions."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling.counts import TokenCounts
from engine_adapters.embedded.sampling.grammar import GrammarMatcher
from engine_adapters.embedded.sampling.uniform import UniformStream
from engine_adapters.errors import InvalidRequestError

_GREEDY_BELOW = 1e-5  # a colder temperature than this only divides by what float32 cannot tell from 0

_NO_IDS = np.empty(0, np.int64)


class SamplingState:
    """The sampling side of one sequence (one choice of one request).

    Owned by the engine thread. It holds no tensor and no device memory; `Sampler.sample` advances it.
    """

    __slots__ = (
        "_banned_always",
        "_banned_early",
        "bias_ids",
        "bias_values",
        "counts",
        "generated",
        "grammar",
        "greedy",
        "params",
        "uniforms",
    )

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: NDArray[np.int32],
        choice: int = 0,
        grammar: GrammarMatcher | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        self.params = params
        self.grammar = grammar  # this sequence's own; never shared between choices
        self.generated = 0  # tokens accepted so far
        self.greedy = params.temperature < _GREEDY_BELOW
        self.uniforms = UniformStream(params.seed, choice)
        self.counts = _counts_for(params, prompt_ids)  # None: no penalty needs them
        self.bias_ids = np.fromiter(params.logit_bias.keys(), np.int64)
        self.bias_values = np.fromiter(params.logit_bias.values(), np.float32)
        eos = tuple(eos_token_ids)
        self._banned_always = _unique(eos) if params.ignore_eos else _NO_IDS
        self._banned_early = _unique((*eos, *params.stop_token_ids))

    @property
    def banned(self) -> NDArray[np.int64]:
        """Ids that must not come next: end tokens under `ignore_eos`, before `min_tokens` stop ids too."""
        return self._banned_early if self.generated < self.params.min_tokens else self._banned_always

    @property
    def grammar_finished(self) -> bool:
        """True once the grammar permits nothing more: the sequence ends here with "stop"."""
        return self.grammar is not None and self.grammar.finished

    def uniform(self) -> float:
        """The random number that decides the next token."""
        return self.uniforms.at(self.generated)

    def accept(self, token_id: int) -> None:
        """Append one token. `Sampler.sample` does this itself; call it only for tokens forced from outside.

        Raises:
            GrammarError: the grammar forbids this token or broke on it; nothing else has changed then.
        """
        if self.grammar is not None:
            self.grammar.accept(token_id)
        if self.counts is not None:
            self.counts.add(token_id)
        self.generated += 1


def check_params(params: SamplingParams, vocab_size: int) -> None:
    """Refuse token ids the model does not have; call it when a request is admitted.

    Raises:
        InvalidRequestError: names the field.
    """
    for param, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        wrong = [token_id for token_id in ids if not 0 <= token_id < vocab_size]
        if wrong:
            raise InvalidRequestError(
                f"token id {wrong[0]} is not in the vocabulary of {vocab_size}", param=param
            )


def _counts_for(params: SamplingParams, prompt_ids: NDArray[np.int32]) -> TokenCounts | None:
    if params.repetition_penalty != 1.0:
        return TokenCounts(prompt_ids)
    if params.presence_penalty or params.frequency_penalty:
        return TokenCounts(None)
    return None


def _unique(ids: Iterable[int]) -> NDArray[np.int64]:
    return np.unique(np.fromiter(ids, np.int64))
