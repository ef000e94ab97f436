"""Expectations of requests that are on their way already: worked out a moment later, many at once, in their order."""

import asyncio

from gateway.ledger.expectation import Expectation, Predictor, SentRequest

_WAIT_S = 0.002
_AT_ONCE = 16  # more of them would hold up a request that waits


class Later:
    """What will be expected of one request; whoever asks before it is known has it worked out now."""

    __slots__ = ("_found", "_predictor", "_sent")

    def __init__(self, predictor: Predictor, sent: SentRequest) -> None:
        self._predictor = predictor
        self._sent: SentRequest | None = sent
        self._found: Expectation | None = None

    def known(self) -> Expectation:
        """The expectation. Takes as long as hashing the request, the first time."""
        if self._sent is not None:
            sent, self._sent = self._sent, None
            self._found = self._predictor.expect(sent)
        assert self._found is not None
        return self._found


class LaterExpectations:
    """Used from one event loop."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._waiting: list[Later] = []
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, request: SentRequest) -> Later:
        """What is to be expected of `request`, which goes to its engine now."""
        later = Later(self._predictor, request)
        self._waiting.append(later)
        if len(self._waiting) >= _AT_ONCE:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self.flush)
        return later

    def flush(self) -> None:
        """Work out what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for later in waiting:
            later.known()
