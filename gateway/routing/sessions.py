"""Which replica a session was sent to last."""

from collections import OrderedDict


class Sessions:
    """Of one engine, within bounds; the ones that were not used for longest are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at: OrderedDict[int, str] = OrderedDict()  # by hash: clients choose how long their names are

    def replica(self, scope: str, session: str | None) -> str | None:
        """None: there is no session, or it is new."""
        return None if session is None else self._at.get(hash((scope, session)))

    def went(self, scope: str, session: str | None, replica: str) -> None:
        """A request of the session was sent there."""
        if session is None:
            return
        key = hash((scope, session))
        self._at[key] = replica
        self._at.move_to_end(key)
        if len(self._at) > self._most:
            self._at.popitem(last=False)

    def forget(self, replica: str) -> None:
        """Nobody has to go back there."""
        for key in [key for key, at in self._at.items() if at == replica]:
            del self._at[key]
