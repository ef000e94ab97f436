"""What a relayed engine produced, on its way into the memory."""

from typing import Any

import orjson

from engine_adapters.reuse.sse import EventSplitter, event_data
from gateway.canonical.recorder import Recording

_LONGEST = 16 << 20  # bytes of an answer; a longer one is not remembered


class RelayRecorder:
    """Keeps a copy of the answer's bytes until it is complete."""

    def __init__(self, recording: Recording, *, stream: bool) -> None:
        self.recording = recording
        self._stream = stream
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that `keep` goes through."""
        return self.recording.size + self._size

    def add(self, chunk: bytes) -> None:
        """Take what goes to the client."""
        self._size += len(chunk)
        if self._size <= _LONGEST:
            self._parts.append(chunk)
        else:
            self._parts.clear()

    def keep(self) -> None:
        """Remember the answer. Takes as long as parsing it and hashing the request."""
        if self._size > _LONGEST:
            return
        to, answer = self.recording, b"".join(self._parts)
        self._parts.clear()
        response = _events(answer) if self._stream else _loaded(answer)
        if response:
            to.memory.record(to.body, response, to.scope, to.session)


def _events(answer: bytes) -> list[Any]:
    splitter = EventSplitter()
    events = [*splitter.feed(answer), splitter.rest()]
    parsed = [_loaded(event_data(event)) for event in events]
    return [payload for payload in parsed if isinstance(payload, dict)]


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # [DONE], comments, and what is no JSON
        return None
