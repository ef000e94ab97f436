"""Names of models in answers: what an engine calls its own, a file's path for example, as clients call it."""

import json
from collections.abc import Mapping
from typing import Any

import orjson

_HOLDERS = ("response", "message")  # objects of events that have a `model`, too


class ModelNames:
    """`names`: the engine's own -> what is shown in its place. All else that an engine says stays."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._texts = tuple(pair for own, shown in names.items() for pair in _texts(own, shown))

    def payload(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A whole answer, or an event with a type; the very same where it has no such name."""
        changed = self._of(payload)
        for holder in _HOLDERS:
            inner = payload.get(holder)
            if isinstance(inner, dict) and (its := self._of(inner)) is not inner:
                changed = {**changed, holder: its}
        return changed

    def chunk(self, event: bytes) -> bytes:
        """An event of a chat or text completion, whose only `model` is at its top: it need not be parsed for that.

        In a JSON text such quotes stand around keys and values alone; within a string they have backslashes.
        """
        for own, shown in self._texts:
            event = event.replace(own, shown)
        return event

    def _of(self, payload: dict[str, Any]) -> dict[str, Any]:
        own = payload.get("model")
        shown = self._names.get(own) if isinstance(own, str) else None
        return payload if shown is None else {**payload, "model": shown}


def _texts(own: str, shown: str) -> list[tuple[bytes, bytes]]:
    """As servers write it: with a blank or without, beyond ASCII as it is or escaped."""
    spelled = dict.fromkeys((orjson.dumps(own), json.dumps(own).encode()))
    return [
        (key + text, key + orjson.dumps(shown)) for key in (b'"model":', b'"model": ') for text in spelled
    ]
