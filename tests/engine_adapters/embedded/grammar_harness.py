"""Random models under a grammar: what they write, token by token, through the real sampler."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling import GrammarMatcher, SampledToken, Sampler, SamplingState

BYTE_LEVEL_EOS = (256, 257)


def byte_level_tokenizer() -> Tokenizer:
    """One token a byte, and two end tokens: every way to split a text and a character is open to the model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>"), AddedToken("<stop>")])
    return tokenizer


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote until the grammar, or an end token, ended it."""

    text: str
    token_ids: tuple[int, ...]
    ended: bool  # False: the steps ran out first


def write(
    tokenizer: Tokenizer,
    matcher: GrammarMatcher,
    logits: Callable[[int], torch.Tensor],
    *,
    params: SamplingParams,
    eos: tuple[int, ...],
    steps: int = 2000,
) -> Written:
    """Generate under `matcher`; `logits(step)`, shape [vocab], is the model."""
    state = SamplingState(params, np.empty(0, np.int32), 0, matcher, eos)
    made: list[int] = []
    while len(made) < steps and not state.grammar_finished:
        (result,) = Sampler().sample(logits(len(made))[None], [state])
        assert isinstance(result, SampledToken), result
        made.append(result.token_id)
        if result.token_id in eos:
            break
    ended = state.grammar_finished or bool(made and made[-1] in eos)
    return Written(tokenizer.decode([i for i in made if i not in eos]), tuple(made), ended)


class RandomModel:
    """Every token about equally likely, but for those that close something: they make a text end some day."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        texts = tokenizer.decode_batch([[token_id] for token_id in range(tokenizer.get_vocab_size())])
        closing = [i for i, text in enumerate(texts) if text.strip(" ,\n") in _CLOSING]
        base = torch.zeros(vocab)
        base[closing] = float(np.log(vocab / 4 / len(closing)))
        self._noise = torch.from_numpy(np.random.default_rng(0).normal(0, 1, vocab).astype(np.float32))
        self._base = base

    def __call__(self, step: int) -> torch.Tensor:
        """The logits of one step, shape [vocab]."""
        return self._base + self._noise.roll(step * 7919)


_CLOSING = frozenset(['"', "}", "]", '"}', '"]', "}}", "]}"])
