"""One model's tokenizer in the forms that encoding needs."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from canon.errors import ModelFolderError
from canon.tokens.model_folder import ModelFolder


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
    def literal(self) -> Tokenizer:
        """Takes special tokens for ordinary text."""
        return _literal(self._build(self._source))

    @cached_property
    def inner(self) -> Tokenizer:
        """For a piece that does not begin the text."""
        return self.plain if self._inner_source is None else self._build(self._inner_source)

    @cached_property
    def inner_literal(self) -> Tokenizer:
        return self.literal if self._inner_source is None else _literal(self._build(self._inner_source))

    @cached_property
    def _inner_source(self) -> str | None:
        """The tokenizer's description for pieces past the first; None where they are encoded alike.

        Of all pre-tokenizers only Metaspace looks at where in the text a piece stands.
        """
        if not _first_only_metaspaces(self._description.get("pre_tokenizer")):
            return None
        description: dict[str, Any] = orjson.loads(self._source)
        for part in _first_only_metaspaces(description["pre_tokenizer"]):
            part["prepend_scheme"] = "never"
        return orjson.dumps(description).decode()

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
    # The batch call is the one that computes no offsets.
    encoding = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
    return np.array(encoding.ids, dtype=np.int32)


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
