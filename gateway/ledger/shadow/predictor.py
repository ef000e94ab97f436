"""The shadows of all engines, as the request path sees them."""

import logging
import threading
from collections import OrderedDict

from canon.lint.prefix_model import PrefixModel
from engine_adapters.base import ReuseReport
from gateway.ledger.expectation import NOTHING_EXPECTED, Expectation, Predictor, SentRequest
from gateway.ledger.row import GapCause
from gateway.ledger.shadow.engine_shadow import EngineShadow, ShadowSettings
from gateway.ledger.shadow.gap import Sent, gap_cause

log = logging.getLogger("kvgate.ledger")

_ENGINES = 64  # shadows that are kept; of more the one that was not used for longest goes


class ShadowPredictor(Predictor):
    """Predicts reuse from what engines were sent. Safe from any thread; never raises.

    Attributes:
        failed: predictions that went wrong, for a reason which was logged once.
    """

    def __init__(self, settings: ShadowSettings | None = None) -> None:
        self._settings = settings or ShadowSettings()
        self._engines: OrderedDict[str, EngineShadow] = OrderedDict()
        self._elsewhere: PrefixModel | None = None  # what all engines were sent, once there are two of them
        self._lock = threading.Lock()
        self._shared = threading.Lock()
        self.failed = 0

    def expect(self, request: SentRequest) -> Expectation:
        """What of this request its engine should have; it counts as sent from now on. Takes as long as hashing it."""
        try:
            return self._of(request).expect(request, self._elsewhere, self._shared)
        except Exception as error:  # noqa: BLE001  whatever a body has in it, the request goes on
            self._failed(error)
            return NOTHING_EXPECTED

    def cause(self, expected: Expectation, reuse: ReuseReport) -> GapCause | None:
        """Why less was reused than expected; None: no less was, or that is not known. Called when it has ended."""
        sent = expected.token
        if not isinstance(sent, Sent):
            return None
        shadow = self._engines.get(sent.engine)
        if shadow is not None:
            shadow.ended(sent, reuse)
        return gap_cause(sent, reuse)

    def forget(self) -> None:
        """Drop all shadows, with the prompts in them."""
        with self._lock, self._shared:
            self._engines.clear()
            self._elsewhere = None

    def _of(self, request: SentRequest) -> EngineShadow:
        with self._lock:
            shadow = self._engines.get(request.engine)
            if shadow is None or request.block_size not in (None, shadow.block_size):
                shadow = EngineShadow(self._settings, request.block_size, request.cache_tokens)
                self._add(request.engine, shadow)
            self._engines.move_to_end(request.engine)
            return shadow

    def _add(self, engine: str, shadow: EngineShadow) -> None:
        others = [other for name, other in self._engines.items() if name != engine]
        if others and self._elsewhere is None:
            self._elsewhere = others[0].fork_text()
        self._engines[engine] = shadow
        if len(self._engines) > _ENGINES:
            self._engines.popitem(last=False)

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        if self.failed == 1:
            # Its own text is left out, since it may quote a prompt.
            log.error(
                "a request's reuse could not be predicted", extra={"fields": {"error": type(error).__name__}}
            )
