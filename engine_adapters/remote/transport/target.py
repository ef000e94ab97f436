"""Where requests go, and the head of each of them. Bodies are JSON."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

_BODILESS = ("GET", "DELETE")  # whose requests have no body, unless they say so


class Origin(msgspec.Struct, frozen=True):
    """One server."""

    host: str
    port: int
    tls: bool

    @property
    def name(self) -> str:
        """As the header `host` has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Target:
    """One URL with the headers that all of its requests have."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        host = (parts.hostname or "").encode("idna").decode()
        self.origin = Origin(host, parts.port or (443 if tls else 80), tls)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._line = f"{method} {path} HTTP/1.1\r\nhost: {self.origin.name}\r\n"
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._empty = "" if method in _BODILESS else "content-length: 0\r\n"
        self._usual = self._line + _lines(self._headers)

    def head(self, size: int, headers: Mapping[str, str]) -> bytes:
        """The head of a request with `size` bytes of body; `headers` (names in lower case) go before the usual ones.

        Raises ValueError for a header that would end its line.
        """
        first = self._usual
        if not self._headers.keys().isdisjoint(headers):
            first = self._line + _lines(
                {name: value for name, value in self._headers.items() if name not in headers}
            )
        length = f"content-type: application/json\r\ncontent-length: {size}\r\n" if size else self._empty
        return f"{first}{_lines(headers)}{length}\r\n".encode("latin-1")


def _lines(headers: Mapping[str, str]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
        raise ValueError("a header has a line end in it")
    return lines
