"""Where a session runs: hosts, addresses, ports, processes, directories."""

from canon.values.label_words import PLACE
from canon.values.labels import Label
from canon.values.shapes import ABSOLUTE_PATH, ADDRESS, HOST, NUMBER, TEMPORARY_PATH, URL
from canon.values.value import Value, is_placeholder
from canon.values.words import word_set

_EPHEMERAL = 32768  # ports from here on are picked by the system, RFC 6335 and Linux's defaults
_PID = frozenset(("pid", "ppid", "进程号", "進程號"))
_PORT = word_set("port puerto porta порт 端口 埠 ポート 포트")
_HOST = word_set(
    """
hostname host pod container instance vm worker sandbox server machine computer node computername
machinename servername rechnername hostnaam ip address 主机 主機 主机名 主機名 ホスト ホスト名 アドレス
地址 호스트이름 주소 adresse адрес
"""
)
# Whose hosts may be called by any word.
_NAMED = word_set(
    """
hostname host machine computer computername machinename rechnername 主机名 主機名 ホスト名 호스트이름
"""
)
# Whose URLs are made anew for each session.
_OWN = word_set(
    """
sandbox preview container worker vm instance tunnel session workspace browser cdp vnc remote runtime dev
local machine pod debug debugger proxy 沙盒 沙箱 サンドボックス
"""
)


def place_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    words = label.words
    if not _PID.isdisjoint(words):
        return _number("pid", text, start, stop, True)
    if not _PORT.isdisjoint(words) and (found := NUMBER.match(text, start, stop)):
        return Value("port", found.end(), _is_own_port(label, found[0]))
    if found := URL.match(text, start, stop):
        return Value(
            "url",
            _end(found.end(), text),
            (label.strong(PLACE) or label.colon) and not _OWN.isdisjoint(words),
        )
    if path := _path(text, start, stop, label):
        return path
    if not _HOST.isdisjoint(words):
        return _host(text, start, stop, label)
    return None


def _is_own_port(label: Label, digits: str) -> bool:
    """A port that is this session's; `The server is listening on port 8080` tells of a server."""
    return label.strong(PLACE) or ("listening" in label.words and (label.colon or int(digits) >= _EPHEMERAL))


def _number(kind: str, text: str, start: int, stop: int, sure: bool) -> Value | None:
    found = NUMBER.match(text, start, stop)
    return Value(kind, found.end(), sure) if found else None


def _path(text: str, start: int, stop: int, label: Label) -> Value | None:
    found = ABSOLUTE_PATH.match(text, start, stop)
    if found is None:
        return None
    temporary = TEMPORARY_PATH.match(found[0]) is not None
    kind = "temporary path" if temporary else "path"
    return Value(kind, _end(found.end(), text), temporary or label.strong(PLACE))


def _host(text: str, start: int, stop: int, label: Label) -> Value | None:
    if found := ADDRESS.match(text, start, stop):
        port = found[0].rpartition(":")[2]
        own = found[0].startswith(("127.", "[::1]")) or (port.isdigit() and int(port) >= _EPHEMERAL)
        return Value("address", found.end(), label.strong(PLACE) or (label.joined and own))
    found = HOST.match(text, start, stop)
    if found is None or is_placeholder(found[0]):
        return None
    telling = any(c.isdigit() or c in ".-" for c in found[0])
    if not telling and not (label.joined and not _NAMED.isdisjoint(label.words)):
        return None
    sure = (label.strong(PLACE) and label.joined) or "running" in label.words
    return Value("host", found.end(), sure)


def _end(end: int, text: str) -> int:
    """A full stop at the end of a path or URL belongs to the sentence."""
    return end - 1 if text[end - 1] in ".:)" else end
