"""One model's tokenizer in the forms that encoding needs."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from canon.errors import ModelFolderError
from canon.tokens.model_folder import ModelFolder
from canon.tokens.token_bytes import FewestTokens

# Where a text stands: at the prompt's beginning, behind a special token, or behind text that it goes on from.
Place = Literal["first", "inner", "continuing"]


class TokenizerSet:
    """The tokenizer as it is, one that takes special tokens for text, and both for the middle of a text.

    The forms are built when first needed: most prompts need only the first.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self._description = _without_vocabulary(folder.tokenizer_json)
        self._source = folder.tokenizer_json.decode()
        self._folder = folder
        self.plain = self._build(self._source)
        self.added: dict[int, AddedToken] = self.plain.get_added_tokens_decoder()
        self.special_ids = {token.content: i for i, token in self.added.items() if token.special}

    @property
    def deterministic(self) -> bool:
        """BPE with dropout gives other tokens each time."""
        return not self._description["model"].get("dropout")

    @property
    def unknown_token(self) -> str | None:
        """The token that stands for what the vocabulary lacks."""
        model = self._description["model"]
        if (index := model.get("unk_id")) is not None:
            return self.plain.id_to_token(index)
        token = model.get("unk_token")
        return token if isinstance(token, str) else None

    @cached_property
    def fewest(self) -> FewestTokens:
        """How few tokens a text can have."""
        return FewestTokens(orjson.loads(self._source), self.added)

    @cached_property
    def literal(self) -> Tokenizer:
        """Takes special tokens for ordinary text."""
        return _literal(self._build(self._source))

    @cached_property
    def inner(self) -> Tokenizer:
        """For a piece that does not begin the text."""
        return self.plain if self._inner_as == self._description else self._build_as(self._inner_as)

    @cached_property
    def inner_literal(self) -> Tokenizer:
        return self.literal if self.inner is self.plain else _literal(self._build_as(self._inner_as))

    @cached_property
    def prepends(self) -> bool:
        """Does the normalizer put something before every text?"""
        return self.continuing_description != self._inner_as

    @cached_property
    def continuing(self) -> Tokenizer:
        """For a text that goes on inside a piece, with a blank, a line end or punctuation."""
        return self._build_as(self.continuing_description) if self.prepends else self.inner

    @cached_property
    def continuing_literal(self) -> Tokenizer:
        return _literal(self._build_as(self.continuing_description)) if self.prepends else self.inner_literal

    @cached_property
    def _inner_as(self) -> dict[str, Any]:
        """The description for pieces past the first, without the vocabulary.

        Of all pre-tokenizers only Metaspace looks at where in the text a piece stands.
        """
        description = deepcopy(self._description)
        for part in _first_only_metaspaces(description.get("pre_tokenizer")):
            part["prepend_scheme"] = "never"
        return description

    @cached_property
    def continuing_description(self) -> dict[str, Any]:
        """The description of `continuing`, without the vocabulary."""
        return {**self._inner_as, "normalizer": _without_prepend(self._inner_as.get("normalizer"))}

    def form(self, place: Place, *, literal: bool) -> Tokenizer:
        """The tokenizer for a text at `place`; `literal`: special tokens in it are text."""
        if place == "first":
            return self.literal if literal else self.plain
        if place == "inner":
            return self.inner_literal if literal else self.inner
        return self.continuing_literal if literal else self.continuing

    def _build_as(self, description: dict[str, Any]) -> Tokenizer:
        whole = orjson.loads(self._source) | {k: v for k, v in description.items() if k != "model"}
        return self._build(orjson.dumps(whole).decode())

    def _build(self, source: str) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_str(source)
        except Exception as error:
            raise ModelFolderError(f"tokenizer.json cannot be used: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        _add_missing(tokenizer, self._folder)
        return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> NDArray[np.int32]:
    """The ids of `text` alone, int32 [tokens]: nothing put before or behind it."""
    return encode_all(tokenizer, [text])[0]


def encode_all(tokenizer: Tokenizer, texts: Sequence[str]) -> list[NDArray[np.int32]]:
    """The ids of each of `texts` alone, as `encode` gives them.

    Several texts are encoded on several threads, without the interpreter's lock.
    """
    # The batch call is the one that computes no offsets.
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]


def _literal(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.encode_special_tokens = True
    return tokenizer


def _add_missing(tokenizer: Tokenizer, folder: ModelFolder) -> None:
    present = {repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
    _add(tokenizer, [token for token in folder.declared_tokens if repr(token) not in present])
    names = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    _add(tokenizer, [token for token in folder.named_tokens if token.content not in names])


def _add(tokenizer: Tokenizer, tokens: Sequence[AddedToken]) -> None:
    if tokens:
        tokenizer.add_tokens(list(tokens))


def _without_vocabulary(source: bytes) -> dict[str, Any]:
    try:
        description = orjson.loads(source)
        model = description["model"]
        description["model"] = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"tokenizer.json cannot be used: {error!r}") from error
    return dict(description)


def _first_only_metaspaces(part: Any) -> list[dict[str, Any]]:
    """The Metaspace steps, also inside sequences, that put a blank only before the text's first piece."""
    if not isinstance(part, dict):
        return []
    if part.get("type") == "Sequence":
        return [found for inner in part["pretokenizers"] for found in _first_only_metaspaces(inner)]
    return [part] if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first" else []


def _without_prepend(part: Any) -> Any:
    """A normalizer's description without what it puts before every text."""
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Prepend":
        return None
    if part.get("type") == "Sequence":
        kept = [_without_prepend(inner) for inner in part["normalizers"]]
        return {**part, "normalizers": [inner for inner in kept if inner is not None]}
    return part
