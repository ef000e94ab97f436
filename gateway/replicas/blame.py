"""Whether a failure speaks against its replica, or of the request alone: one tenant's bad body breaks no engine.

Engines answer 500 to bodies that they should have refused, and some that break a connection or take too long do so
for what one client sent. So such a failure counts only where the one before it at that replica was another tenant's;
and while nobody else is answered, where it was another body.
"""

from collections.abc import Callable


class AnsweredLately:
    """Tenants that any replica of an engine has answered well. The two newest say of each whether others were."""

    def __init__(self, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._newest = self._other = ""  # tenants; never the same one
        self._newest_at = self._other_at = float("-inf")

    def well(self, tenant: str) -> None:
        """A request of `tenant` was answered."""
        if tenant != self._newest:
            self._other, self._other_at = self._newest, self._newest_at
            self._newest = tenant
        self._newest_at = self._clock()

    def others(self, tenant: str) -> bool:
        """Whether another one than `tenant` was answered within the window."""
        at = self._other_at if tenant == self._newest else self._newest_at
        return self._clock() - at <= self._window_s


class Blame:
    """Of one replica: whose doubtful failure was the newest. `answered` is its engine's."""

    def __init__(self, answered: AnsweredLately) -> None:
        self._answered = answered
        self._newest: tuple[str, int] | None = None  # tenant, and hash of the body

    def counts(self, tenant: str, body: int) -> bool:
        """A request has failed in a way that may be its own fault. Whether that counts against the replica."""
        before, self._newest = self._newest, (tenant, body)
        if before is None or before[0] != tenant:
            return True
        return before[1] != body and not self._answered.others(tenant)

    def well(self, tenant: str) -> None:
        """The replica has answered a request of `tenant`."""
        self._answered.well(tenant)
