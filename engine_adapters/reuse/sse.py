"""Server-sent events as they arrive: split anywhere, with any line end, with or without a blank after `data:`."""

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_BOM = b"\xef\xbb\xbf"
MAX_EVENT = 32 << 20  # bytes; a stream with a longer one is passed on unread


class EventSplitter:
    """Cuts a byte stream into whole events, their end lines included. Comments are events without data."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._looked = 0
        self.overflowed = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now. After an event of more than MAX_EVENT bytes nothing is split any more."""
        if self.overflowed:
            return [chunk]
        if (
            not self._buffer and chunk.endswith(b"\n\n") and b"\r" not in chunk
        ):  # whole events, the usual form
            return [event + b"\n\n" for event in chunk[:-2].split(b"\n\n")]
        self._buffer += chunk
        events: list[bytes] = []
        start = 0
        while found := _END.search(self._buffer, max(start, self._looked)):
            end = found.end()
            events.append(bytes(self._buffer[start:end]))
            start = self._looked = end
        del self._buffer[:start]
        self._looked = max(0, len(self._buffer) - 3)
        if len(self._buffer) > MAX_EVENT:
            self.overflowed = True
            events.append(self.rest())
        return events

    def rest(self) -> bytes:
        """What came after the last whole event."""
        left = bytes(self._buffer)
        self._buffer.clear()
        self._looked = 0
        return left


def event_data(event: bytes) -> bytes:
    """The data of one event, its lines joined; empty for comments and events without any."""
    event = event.removeprefix(_BOM)  # which a stream may begin with
    if event.startswith(b"data:") and b"\ndata:" not in event and b"\rdata:" not in event:
        line = event.split(b"\n", 1)[0].split(b"\r", 1)[0][5:]  # the usual form: one line
        return line.removeprefix(b" ")
    lines = re.split(rb"\r\n|\n|\r", event)
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(data)
