"""Fields of a request that are no text of the prompt but decide what becomes of it."""

from typing import Any

from canon.lint.causes import Cause
from canon.lint.segments import Segment, dump

SALTS = ("cache_salt", "extra_key")
TEMPLATE_SWITCHES = ("chat_template_kwargs", "chat_template", "reasoning_effort", "documents")

_ALL = frozenset((*SALTS, *TEMPLATE_SWITCHES))

_SALT = Cause("cache_salt", "another cache salt", "one salt for all requests of a tenant")
_SWITCH = Cause(
    "template_switch", "template switches differ", "the same switches in every request of a conversation"
)


def switches_of(body: Any) -> list[Segment]:
    """Those that a body has, salts first, each as a piece with its name as path."""
    if not isinstance(body, dict) or _ALL.isdisjoint(body):
        return []
    names = [name for name in (*SALTS, *TEMPLATE_SWITCHES) if body.get(name) is not None]
    return [Segment((name,), "switch", "other", dump(body[name])) for name in names]


def switch_cause(piece: Segment) -> Cause:
    """What it is called that this one differs."""
    return _SALT if piece.path[0] in SALTS else _SWITCH
