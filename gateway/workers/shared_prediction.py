"""What engines were sent by all workers of a server, and what each should have of the next request."""

import asyncio
import logging
from typing import Any

import msgspec
import orjson

from engine_adapters.base import ReuseReport
from engine_adapters.engine_process.wire import ids_read, ids_sent
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import RpcError
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.service import Call
from gateway.ledger.expectation import NOTHING_EXPECTED, Expectation, Predictor, Routed, SentRequest
from gateway.ledger.row import GapCause
from gateway.ledger.shadow import ShadowPredictor
from gateway.ledger.shadow.gap import Sent, gap_cause

log = logging.getLogger("kvgate.workers")

_TIMEOUT_S = 1.0
_INLINE = 20_000  # bytes; larger requests are hashed on a thread


class PredictionKeeper:
    """The shadows, in the process that all workers are connected to."""

    def __init__(self) -> None:
        self._shadows = ShadowPredictor()

    def calls(self) -> dict[str, Call]:
        """For a `Service`."""
        return {
            "prediction.expect": self._expect,
            "prediction.ended": self._ended,
            "prediction.forget": lambda _: self._shadows.forget(),
        }

    def _expect(self, _: Connection, fields: dict[str, Any], came: bytes | None, sent: bytes) -> Any:
        if fields["size"] <= _INLINE:
            return self._expected(fields, came, sent)
        return asyncio.to_thread(self._expected, fields, came, sent)

    def _expected(self, fields: dict[str, Any], came: bytes | None, sent: bytes) -> Expectation:
        tokens, routed, body = fields.pop("tokens"), fields.pop("routed"), orjson.loads(sent)
        request = SentRequest(
            came=body if came is None else orjson.loads(came),
            sent=body,
            tokens=None if tokens is None else ids_read(tokens),
            routed=None if routed is None else msgspec.convert(routed, Routed),
            **fields,
        )
        return self._shadows.expect(request)

    def _ended(self, _: Connection, sent: dict[str, Any], reuse: dict[str, Any]) -> None:
        expected = Expectation(token=msgspec.convert(sent, Sent))
        self._shadows.cause(expected, msgspec.convert(reuse, ReuseReport))


class WorkerPredictor(Predictor):
    """As `Predictor` says, for one worker. While the shadows are away nothing is expected."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._away = False

    def expect(self, request: SentRequest) -> Expectation:
        """Nothing: who can wait calls `expecting`."""
        return NOTHING_EXPECTED

    async def expecting(self, request: SentRequest) -> Expectation:
        """What of this request its engine should have; it counts as sent from now on."""
        try:
            sent = orjson.dumps(request.sent)
            came = None if request.came is request.sent else orjson.dumps(request.came)
        except TypeError:
            return NOTHING_EXPECTED  # a number or a text that cannot be written again
        fields = {
            "engine": request.engine,
            "scope": request.scope,
            "size": request.size,
            "block_size": request.block_size,
            "tokens": None if request.tokens is None else ids_sent(request.tokens),
            "routed": request.routed,
            "cache_tokens": request.cache_tokens,
        }
        try:
            answer = await self._link.call("prediction.expect", fields, came, sent, timeout_s=_TIMEOUT_S)
        except RpcError as error:
            self._say(error)
            return NOTHING_EXPECTED
        self._away = False
        found = msgspec.convert(answer, Expectation)
        token = None if found.token is None else msgspec.convert(found.token, Sent)
        return Expectation(found.predicted, found.saved, found.divergence, token)

    def forget(self) -> None:
        """Drop all that engines were sent."""
        self._link.tell("prediction.forget")

    def cause(self, expected: Expectation, reuse: ReuseReport) -> GapCause | None:
        """Why less was reused than expected; None: no less was, or that is not known."""
        if not isinstance(expected.token, Sent):
            return None
        self._link.tell("prediction.ended", expected.token, reuse)
        return gap_cause(expected.token, reuse)

    def _say(self, error: RpcError) -> None:
        if not self._away:
            log.error("reuse is not predicted for now", extra={"fields": {"error": str(error)}})
        self._away = True
