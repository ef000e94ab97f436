"""Completions bodies."""

from collections.abc import Iterator
from typing import ClassVar

from canon.requests.paths import Path
from canon.requests.view import Kind, RequestView, TextSlot


class CompletionsView(RequestView):
    """A raw prompt, which decides the next token with its last character: there is nothing that rules may edit.

    `prompt` is a text, token ids, or a list of either, each a prompt of its own. Token ids are not shown.
    """

    kind: ClassVar[Kind] = "completions"

    def _find_system_texts(self) -> list[TextSlot]:
        return []

    def texts(self) -> Iterator[TextSlot]:
        prompt = self.draft.body["prompt"]
        if isinstance(prompt, str):
            yield TextSlot(("prompt",), prompt, "user", -1)
        elif isinstance(prompt, list):
            for index, text in enumerate(prompt):
                if isinstance(text, str):
                    yield TextSlot(("prompt", index), text, "user", index)

    def tool_results(self) -> list[TextSlot]:
        return []

    def newest_turn(self) -> Path | None:
        return None
