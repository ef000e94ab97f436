"""A client that leaves when a test says so, and not when its patience happens to be over."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def asking(port: int, path: str, body: Mapping[str, object]) -> Iterator[socket.socket]:
    """A connection over which that was asked and nothing was read; it is closed at the end of the block."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        yield connection
