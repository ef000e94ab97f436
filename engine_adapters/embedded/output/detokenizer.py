"""Token ids to text, one token at a time, never splitting a character."""

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol

from tokenizers import Tokenizer

from engine_adapters.embedded.output.token_texts import TokenTexts, token_texts

__all__ = ["IncrementalDetokenizer", "TokenTexts"]

_REPLACEMENT = "\ufffd"
_HOLD_TOKENS = 8  # a character has at most 4 bytes; more unfinished tokens than this never complete one


class IncrementalDetokenizer:
    """The text of one generation, as it grows. Cheap: each token costs the work of its own bytes.

    What `push` and `flush` give out, joined, is what the tokenizer itself decodes for `prompt_tail` + the
    pushed ids, without the prompt tail's text. So the first new word keeps its leading space where the
    prompt has text before it, although SentencePiece decoders strip the space at the start of a text.

    Bytes that cannot become a character come out as U+FFFD, by Unicode's rule (one for each maximal broken
    part). The tokenizers library does the same for byte-level BPE; for `<0x..>` byte tokens it replaces
    every byte of a run in which anything is broken, which cannot be known before the run ends, and is not
    followed.

    Args:
        skip_special_tokens: leave control tokens out of the text.
        prompt_tail: the last ids of the prompt; a dozen is enough.
        keep: texts of control tokens that stay in the text nevertheless, for parsers that need them.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        prompt_tail: Sequence[int] = (),
        keep: Collection[str] = (),
    ) -> None:
        self._texts = token_texts(tokenizer)
        special = self._texts.special if skip_special_tokens else {}
        self._hidden = {i for i, text in special.items() if text not in keep} if keep else special.keys()
        tail = [i for i in prompt_tail if i not in self._hidden and self._texts.knows(i)]
        decoder = _ByBytes if self._texts.by_token else _ByWindow
        self._decoder: _Decoder = decoder(self._texts, tail)

    def push(self, token_id: int) -> str:
        """The text this token completes; may be empty."""
        return "" if token_id in self._hidden else self._decoder.push(token_id)

    def flush(self) -> str:
        """What was held back, at the end of the generation: unfinished characters as U+FFFD."""
        return self._decoder.flush()


class _Decoder(Protocol):
    def push(self, token_id: int) -> str: ...
    def flush(self) -> str: ...


class _ByBytes:
    """For decoders whose tokens stand for bytes of their own."""

    def __init__(self, texts: TokenTexts, tail: list[int]) -> None:
        self._texts = texts
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        follows_text = any(texts.raw(i) for i in tail)
        self._first = not follows_text
        self._to_strip = 0 if follows_text else texts.starts_dropped

    def push(self, token_id: int) -> str:
        raw = self._texts.raw(token_id)
        if self._first and raw:
            self._first = False
            raw = self._texts.raw_first(token_id)
        text = self._utf8.decode(raw)
        return self._strip(text) if self._to_strip and text else text

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)

    def _strip(self, text: str) -> str:
        spaces = len(text) - len(text.lstrip(" "))
        dropped = min(spaces, self._to_strip)
        self._to_strip = self._to_strip - dropped if dropped == len(text) else 0
        return text[dropped:]


class _ByWindow:
    """For any other decoder: decode a few tokens with and without the new one; the difference is new."""

    def __init__(self, texts: TokenTexts, tail: list[int]) -> None:
        self._texts = texts
        self._window = tail[-_HOLD_TOKENS:]  # ids whose text is out, and then those held back
        self._out = len(self._window)  # how many of them are out

    def push(self, token_id: int) -> str:
        if not self._texts.knows(token_id):
            return ""
        self._window.append(token_id)
        text = self._new_text()
        held = len(self._window) - self._out
        if not text or (text.endswith(_REPLACEMENT) and held < _HOLD_TOKENS):
            return ""
        self._window = self._window[self._out :]
        self._out = len(self._window)
        return text

    def flush(self) -> str:
        text = self._new_text()
        self._out = len(self._window)
        return text

    def _new_text(self) -> str:
        decode = self._texts.tokenizer.decode
        before = decode(self._window[: self._out], skip_special_tokens=False)
        return decode(self._window, skip_special_tokens=False)[len(before) :]
