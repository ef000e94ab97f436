"""Log probabilities in OpenAI's two forms: a list of objects (chat), parallel lists (completions)."""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from engine_adapters.base import TokenLogprob

_FLOOR = -9999.0  # how the API writes "impossible", since JSON has no -Infinity


def _finite(logprob: float) -> float:
    return logprob if logprob > _FLOOR else _FLOOR  # NaN becomes the floor, too


def chat_logprobs(tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` object of one chat choice or chunk."""
    content = [{**_entry(token), "top_logprobs": [_entry(top) for top in token.top]} for token in tokens]
    return {"content": content, "refusal": None}


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": _finite(token.logprob), "bytes": list(token.raw)}


class LegacyLogprobs:
    """The `logprobs` object of one completions choice; offsets go on from chunk to chunk."""

    def __init__(self, offset: int) -> None:
        self._offset = offset  # characters of text before the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The object for the next `tokens`."""
        return {
            "tokens": [_name(token) for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [_alternatives(token) for token in tokens],
            "text_offset": [self._advance(token) for token in tokens],
        }

    def _advance(self, token: TokenLogprob) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(token.raw))
        return offset


def _alternatives(token: TokenLogprob) -> dict[str, float]:
    """The most likely tokens, and the chosen one, which may be none of them: up to `logprobs` + 1 entries."""
    return {_name(each): _finite(each.logprob) for each in (*token.top, token)}


def _name(token: TokenLogprob) -> str:
    """A token's text, or its bytes spelled out where they are part of a character."""
    try:
        return token.raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)
