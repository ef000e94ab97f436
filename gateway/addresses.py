"""Addresses of engines, as operators write them."""

from urllib.parse import urlsplit


def engine_url(url: str) -> str:
    """`url` if an engine can be asked there; else ValueError, whose text does not repeat it: it may hold a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its own text quotes the host
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password stands in a URL: a key has a place of its own")
    if parts.query or parts.fragment:
        raise ValueError("nothing may stand behind the path")
    return url
