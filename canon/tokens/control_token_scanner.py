"""Finds special tokens in requests whose prompts are made elsewhere."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from canon.tokens.model_folder import read_model_folder
from canon.tokens.text_scanner import TextScanner
from canon.tokens.tokenizer_set import TokenizerSet
from canon.tokens.written_tokens import written_tokens


class ControlTokenScanner:
    """Knows one model's special tokens and nothing else of it. Thread-safe; CPU-bound, so call it off the loop."""

    def __init__(self, special: Iterable[str]) -> None:
        self._special = TextScanner(special)

    @classmethod
    def from_folder(cls, folder: Path) -> "ControlTokenScanner":
        """Reads a model's `tokenizer.json` and what its configuration adds to it. Raises `ModelFolderError`."""
        return cls(TokenizerSet(read_model_folder(folder)).special_ids)

    def may_be_in(self, raw: bytes) -> bool:
        """Whether `found` may find any in what `raw`, JSON in UTF-8, says; False: it finds none."""
        return self._special.may_be_in_json(raw)

    def found(self, content: Mapping[str, Any]) -> dict[str, int]:
        """How many stand at which path of parsed JSON, as `ChatPrompt.control_tokens` has them.

        Found is what is spelled as the token is, in names as in values, and in what tool-call arguments escape. The
        work is linear in the text; past 256 paths the rest is counted together.
        """
        return written_tokens(self._special, content)
