"""URLs in a body that an engine would fetch, and names under which it would look up media.

Forms: `image_url`, `video_url`, `audio_url`, `file_url` of a content part, each a string or an object with `url`;
Anthropic's `source: {type: url, url}`; tools and MCP servers of the Responses and the Messages API; `image`, `video`
and `audio`, as SGLang's embeddings have them, which loads URLs and paths of files from there; `url` of `input_audio`
and `file`.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from gateway.relay.client_fields import EMBEDS, NAMED_MEDIA

Kind: TypeAlias = Literal["url", "named", "embeds"]
Found: TypeAlias = tuple[Kind, str, Any]  # what it is, its path, its value

_URLS: Final = frozenset({"image_url", "video_url", "audio_url", "file_url", "server_url"})
_PLAIN: Final = {"role", "content"}
_MEDIA: Final = frozenset({"image", "video", "audio", "images", "videos", "audios"})
_OBJECTS: Final = _MEDIA | {"source", "url_source", "input_audio", "input_video", "file", "input_file"}
# Where parts can be. Everything else is text, numbers and schemas.
_HOLDERS: Final = (
    "messages", "system", "input", "inputs", "query", "queries", "documents", "items", "text_1", "text_2",
    "tools", "mcp_servers",
)  # fmt: skip
_BESIDE_MESSAGES: Final = frozenset(_HOLDERS) - {"messages"}
# JSON that a model wrote, or schemas: nobody fetches what stands in there.
_OPAQUE: Final = frozenset(
    {"tool_calls", "function_call", "function", "parameters", "input_schema", "arguments"}
)


def is_plain(body: Mapping[str, Any]) -> bool:
    """Whether it is a chat of plain messages, in which nothing can be found."""
    messages = body.get("messages")
    if type(messages) is not list or not _BESIDE_MESSAGES.isdisjoint(body):
        return False
    for each in messages:
        if type(each) is not dict or each.keys() != _PLAIN or type(each["content"]) is not str:
            return False
    return True


def found_in(body: Mapping[str, Any]) -> Iterator[Found]:
    """All of them, in no particular order; takes as long as looking at every part once."""
    waiting: list[tuple[str, Any]] = [(name, body[name]) for name in _HOLDERS if name in body]
    while waiting:
        path, node = waiting.pop()
        if type(node) is list:
            waiting += [
                (f"{path}[{i}]", each)
                for i, each in enumerate(node)
                if type(each) is list or (type(each) is dict and not _is_text(each))
            ]
        elif type(node) is dict:
            yield from _of_part(path, node)
            opaque = _OPAQUE | {"input"} if node.get("type") == "tool_use" else _OPAQUE
            waiting += [
                (f"{path}.{name}", each)
                for name, each in node.items()
                if type(each) in (dict, list) and name not in opaque and name not in _URLS
            ]


def _is_text(part: dict[str, Any]) -> bool:
    """A plain message, as most are: there is nothing in it but text."""
    return part.keys() == _PLAIN and type(part["content"]) is str


def _of_part(path: str, part: Mapping[str, Any]) -> Iterator[Found]:
    for name, value in part.items():
        if name in _URLS:
            yield from _of_url(f"{path}.{name}", value)
        elif name in _MEDIA:
            yield from _of_media(f"{path}.{name}", value)
        elif name == "url" and (_last(path) in _OBJECTS or path.startswith("mcp_servers")):
            yield "url", f"{path}.url", value
        elif name in NAMED_MEDIA and value is not None:
            yield "named", f"{path}.{name}", value
        elif name in EMBEDS and value is not None:
            yield "embeds", f"{path}.{name}", value
    kind = part.get("type")
    if isinstance(kind, str) and kind in EMBEDS:
        yield "embeds", f"{path}.{kind}", None


def _of_media(path: str, value: Any) -> Iterator[Found]:
    """What stands there as text, singly or in a list; objects are looked through as any other."""
    for each in value if type(value) is list else (value,):
        if type(each) is str:
            yield "url", path, each


def _last(path: str) -> str:
    """The last name in `path`, without places in lists."""
    return path.rpartition(".")[2].partition("[")[0]


def _of_url(path: str, value: Any) -> Iterator[Found]:
    if type(value) is dict:
        yield "url", f"{path}.url", value.get("url")
        for name in NAMED_MEDIA & value.keys():
            if value[name] is not None:
                yield "named", f"{path}.{name}", value[name]
    elif value is not None:
        yield "url", path, value


def may_fetch(url: Any, hosts: frozenset[str]) -> bool:
    """Whether an engine may be given this URL: data, or of one of `hosts` (names and patterns; `*` is all).

    What is no plain URL may be read in another way by whoever fetches it, and is refused.
    """
    if not isinstance(url, str):
        return url is None
    if url.startswith("data:"):
        return True
    host = _host(url)
    return host is not None and any(fnmatchcase(host, each) for each in hosts)


def _host(url: str) -> str | None:
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " \\@"):
        return None
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    return host.rstrip(".")
