"""What waits and runs at each replica, and what it has computed lately."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReplicaLoad:
    """One replica's. Whoever began something there ends it on this very object, whatever became of the replica."""

    queued: int = 0  # prompt tokens, uncached ones, of requests without a first token
    running: int = 0  # requests that have begun to answer
    work: float = 0.0  # tokens prefilled lately; older ones count less
    at: float = 0.0  # when `work` was so
    chosen: int = 0  # the number of the choice that was the last one for it
    # The queue, in order: by the choice's number its tokens, and whether its first one will be told of.
    _waiting: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _since: float = 0.0  # when the first one of the queue began to be prefilled

    @property
    def waiting(self) -> int:
        """Requests without a first token."""
        return len(self._waiting)

    def ahead(self, rate: float, now: float) -> float:
        """Tokens that are still to be prefilled before a new request, at `rate` tokens a second."""
        while self._waiting:
            number, (tokens, told) = next(iter(self._waiting.items()))
            done = max(0.0, now - self._since) * rate
            if told or done < tokens:
                return self.queued - min(tokens, done)
            self.answers(number, self._since + tokens / rate)  # nobody will tell of its first token
        return 0.0

    def began(self, number: int, tokens: int, now: float, *, told: bool = True) -> None:
        """A request came that has so many tokens to prefill. `told`: its first token will be told of."""
        if not self._waiting:
            self._since = now
        self.chosen = number
        self._waiting[number] = tokens, told
        self.queued += tokens
        self.work += tokens

    def answers(self, number: int, now: float) -> None:
        """It has its first token."""
        if number in self._waiting:
            self._leaves(number, now)
            self.running += 1

    def ended(self, number: int, now: float) -> None:
        """It has ended, behind its first token or before."""
        if number in self._waiting:
            self._leaves(number, now)
        else:
            self.running -= 1

    def _leaves(self, number: int, now: float) -> None:
        self.queued -= self._waiting.pop(number)[0]
        self._since = now  # engines prefill one after the other, or all a little: the next one's turn begins

    def corrected(self, tokens: int) -> None:
        """So many tokens more were prefilled than it was thought; below 0: less."""
        self.work = max(0.0, self.work + tokens)

    def age(self, now: float, half_life_s: float) -> None:
        """Let `work` count less, as of now."""
        if now > self.at:
            self.work *= 0.5 ** ((now - self.at) / half_life_s)
            self.at = now


class Loads:
    """Of all replicas of one engine. Times are seconds of any clock that only goes on."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life = half_life_s
        self._of: dict[str, ReplicaLoad] = {}

    def of(self, replicas: Sequence[str], now: float) -> list[ReplicaLoad]:
        """Their loads as of now. A replica that is new counts as if it had worked as much as the others."""
        known = [load for replica in replicas if (load := self._of.get(replica)) is not None]
        for load in known:
            if now > load.at:
                load.age(now, self._half_life)
        if len(known) == len(replicas):
            return known
        mean = sum(load.work for load in known) / len(known) if known else 0.0
        for replica in replicas:
            self._of.setdefault(replica, ReplicaLoad(work=mean, at=now))
        return [self._of[replica] for replica in replicas]

    def alone(self, replica: str) -> bool:
        """Whether no other replica was ever there."""
        return len(self._of) == (replica in self._of)

    def forget(self, replica: str) -> None:
        """It begins anew when it is back."""
        self._of.pop(replica, None)

    def all(self) -> dict[str, ReplicaLoad]:
        """By replica, as they are."""
        return dict(self._of)
