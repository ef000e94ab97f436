"""Whether a replica stores blocks, by what its answers say, and publishes nothing of it."""

from collections.abc import Callable

from engine_adapters.base import ReuseReport

_USUAL_BLOCK = 256  # tokens, where the replica's own size is not known: larger than engines have
ANSWERS = 3  # that stored blocks, before silence says anything
PATIENCE_S = 10.0  # behind the last of those


class Silence:
    """Of one replica. Times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float], patience_s: float = PATIENCE_S) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._ever = False  # something came since it is there
        self._stored = 0  # answers that stored blocks since the last thing came
        self._since = 0.0  # when there were enough of them

    def heard(self) -> None:
        """Something came."""
        self._ever, self._stored = True, 0

    def begin_anew(self) -> None:
        """It was away: what comes back may be another process."""
        self._ever, self._stored = False, 0

    def answered(self, reuse: ReuseReport | None, block_size: int | None) -> None:
        """A request was answered there. `block_size`: tokens; None: not known."""
        if self._stored < ANSWERS and self._computed(reuse) >= (block_size or _USUAL_BLOCK):
            self._stored += 1
            self._since = self._clock()

    def detail(self, *, says_none: bool) -> str | None:
        """Why it is taken to publish none, in words; None: it is not. `says_none`: the engine itself says so."""
        if says_none and not self._ever:
            return "it says that it publishes none"
        if self._stored < ANSWERS or self._clock() - self._since < self._patience_s:
            return None
        return f"nothing came behind {ANSWERS} answers whose prompts fill blocks"

    def _computed(self, reuse: ReuseReport | None) -> int:
        """Prompt tokens that were stored anew, as far as that is certain."""
        if reuse is None or reuse.prompt is None:
            return 0
        if reuse.status == "reported" and reuse.reused is not None:
            return reuse.prompt - reuse.reused
        return 0 if self._ever else reuse.prompt  # it may all have been there
