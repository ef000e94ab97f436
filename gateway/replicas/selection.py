"""Which replicas may get a request: those that are there, but for some that are left alone, never too many of them."""

from collections.abc import Sequence
from math import floor

from gateway.replicas.member import Member


def candidates(
    members: Sequence[Member],
    tried: frozenset[str],
    model: str,
    max_ejected: float,
    room: int | None = None,
) -> list[Member]:
    """Empty: nobody takes it now. `room`: requests that one should run at most; others come first; None: no bound."""
    able = [each for each in members if each.remote.ready and each.has(model) and each.id not in tried]
    if room is None and all(each.calm for each in members):
        return able
    left_alone = ejected(members, max_ejected)
    free = [each for each in able if each not in left_alone] if left_alone else able
    if not tried and (probes := [each for each in free if each.breaker.state == "half_open"]):
        return probes[:1]  # only requests can find out whether it is well again; this one has others to go to
    started = [each for each in free if each.slow_start.takes()] or free
    return [each for each in started if room is None or each.running < room] or started


def at_work(members: Sequence[Member], max_ejected: float) -> int:
    """How many of them get requests now."""
    left_alone = ejected(members, max_ejected)
    return sum(each.remote.ready and each not in left_alone for each in members)


def ejected(members: Sequence[Member], max_ejected: float) -> list[Member]:
    """Who is left alone. Of more than the share allows, those that were for longest are taken back."""
    since = [(at, each) for each in members if (at := each.ejected_since) is not None]
    if not since:
        return []
    newest = sorted(since, key=lambda found: found[0], reverse=True)
    return [each for _, each in newest[: may_be_ejected(len(members), max_ejected)]]


def may_be_ejected(members: int, max_ejected: float) -> int:
    """Of so many; one of two where anybody may be, and never the last one."""
    if members < 2 or max_ejected <= 0:
        return 0
    return min(members - 1, max(1, floor(members * max_ejected)))
