"""Requests that canon has nothing to do for, known again by what its rules look at."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeAlias

from canon import Policy
from gateway.transport.record import CanonTold

_MOST = 512  # of these that are known
_LONGEST = 16_384  # characters of one's system texts
_NOT_LOOKED_AT = frozenset({"user", "assistant"})
_PLAIN = {"role", "content"}

Key: TypeAlias = tuple[object, ...]


class CleanRequests:
    """Chats without tools, in plain messages: rules look at their system texts and at who speaks when, and no further.

    Within one scope each. Safe from any thread: at worst something is worked out again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Key, CanonTold] = OrderedDict()

    def key(self, body: Mapping[str, Any], policy: Policy, scope: str) -> Key | None:
        """What a request is known by; None: rules look at more of it than that."""
        if not body.keys().isdisjoint(_MORE_TO_LOOK_AT):
            return None
        looked_at: list[object] = [scope, policy.stamp]
        size = 0
        messages = body.get("messages")
        for message in messages if type(messages) is list else (None,):
            if type(message) is not dict or message.keys() != _PLAIN:
                return None
            role, content = message["role"], message["content"]
            if type(content) is not str or type(role) is not str:
                return None
            looked_at.append(role)
            if role not in _NOT_LOOKED_AT:
                if role not in ("system", "developer"):
                    return None
                size += len(content)
                looked_at.append(content)
        return tuple(looked_at) if size <= _LONGEST else None

    def get(self, key: Key) -> CanonTold | None:
        """What was told of such a request; None: none was there."""
        told = self._known.get(key)
        if told is not None:
            try:  # noqa: SIM105  a block of `suppress` takes as long as all the rest here
                self._known.move_to_end(key)
            except KeyError:  # another thread has just let it go
                pass
        return told

    def put(self, key: Key, told: CanonTold) -> None:
        """Such a request was gone through, and nothing of it was changed."""
        self._known[key] = told
        if len(self._known) > _MOST:
            self._known.popitem(last=False)


# Tools, and what would make it a request of another kind.
_MORE_TO_LOOK_AT = frozenset(
    {
        *("tools", "functions", "system", "input", "instructions", "prompt"),
        *("anthropic_version", "stop_sequences"),
    }
)
