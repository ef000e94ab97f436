"""One request at one replica, from when it was chosen until it has ended there."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from engine_adapters.base import ReuseReport
from gateway.relay.remote import Remote
from gateway.replicas.breaker import Outcome, Pass, State
from gateway.replicas.member import Member
from gateway.replicas.outliers import Sample
from gateway.routing.router import Decision, Router

# doubtful: it failed in a way that may be the request's own fault
Ending: TypeAlias = Outcome | Literal["doubtful"]

_BYTES_A_TOKEN = 4  # of a body whose prompt nobody here has looked at


class Visit(msgspec.Struct):
    """Whoever gets it says once how it ended; saying it again is of no effect."""

    decision: Decision
    member: Member
    tenant: str
    _router: Router
    _pass: Pass
    # To what its breaker has changed by that, and what was reused.
    _ended: Callable[["Visit", State | None, ReuseReport | None], None]
    raw: bytes = b""  # what is asked
    sample: Sample | None = (
        None  # of how long its first token took; None: that has not come, or does not count
    )
    _open: bool = True
    _answering: bool = False

    @property
    def remote(self) -> Remote:
        """The replica."""
        return self.member.remote

    def work(self, reuse: ReuseReport | None = None) -> int:
        """Prompt tokens to be prefilled there until its first token, those that wait before it among them.

        `reuse`: what the engine said of it; else it goes by what was predicted, and without that by the body's length.
        """
        queued = self.decision.queued or 0
        if reuse is not None and reuse.status == "reported" and reuse.prompt and reuse.reused is not None:
            return queued + reuse.prompt - reuse.reused
        uncached = self.decision.uncached
        return queued + (len(self.raw) // _BYTES_A_TOKEN if uncached is None else uncached)

    def first_token(self) -> None:
        """It has begun to answer."""
        if not self._answering:
            self._answering = True
            self.member.answered()
            self._router.first_token(self.decision)

    def ended(self, ending: Ending, reuse: ReuseReport | None = None, *, whole: bool = False) -> None:
        """The request has ended there; None: no answer said anything of reuse.

        `whole`: it had a prompt, whose answer came to its end, so that what it did not say was not said.
        """
        if not self._open:
            return
        self._open = False
        if ending == "good":
            self.member.answered()
            self.member.blame.well(self.tenant)
        if whole and reuse is not None:
            self.remote.answered(reuse)
        self._router.ended(self.decision, reuse)
        self._ended(self, self.member.breaker.end(self._pass, self._judged(ending)), reuse)

    def _judged(self, ending: Ending) -> Outcome:
        if ending != "doubtful":
            return ending
        return "bad" if self.member.blame.counts(self.tenant, hash(self.raw)) else "unknown"
