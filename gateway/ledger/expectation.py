"""What was expected of a request before it went to its engine, and who expects it."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import ReuseReport
from gateway.ledger.row import Divergence, GapCause


class Expected(Protocol):
    """What is expected of a request, or will be known to be."""

    def known(self) -> "Expectation":
        """The expectation; worked out now, where nobody has needed it yet."""


class Expectation(msgspec.Struct, frozen=True):
    """None: nothing is known."""

    predicted: int | None = None  # prompt tokens that the engine should reuse
    saved: int | None = None  # of them those that edits of canon made reusable, estimated
    divergence: Divergence | None = None  # where the prompt left the nearest earlier one
    token: object | None = None  # the predictor's own, to find the request again

    def known(self) -> "Expectation":
        """Itself."""
        return self


NOTHING_EXPECTED = Expectation()


class Routed(msgspec.Struct, frozen=True):
    """What whoever chose the replica expected, in prompt tokens."""

    predicted: int  # that it should have
    anywhere: int  # that the replica with the most of them should have
    prompt: int  # all of them
    counted: bool  # these are the engine's own tokens, and not estimated


class SentRequest(msgspec.Struct, frozen=True):
    """One request as it goes to its engine."""

    engine: str  # its name
    scope: str  # tenant and model: within what prefixes can be shared
    came: Mapping[str, Any]  # the body as the client sent it
    sent: Mapping[str, Any]  # the body that goes on
    size: int  # bytes
    block_size: int | None = None  # tokens; None: not known
    tokens: NDArray[np.int32] | None = None  # shape [prompt tokens]; None: the engine makes them itself
    routed: Routed | None = None  # counts instead of what the predictor would find itself
    cache_tokens: int | None = None  # KV that the engine keeps; None: not known


@runtime_checkable
class AskedPredictor(Protocol):
    """A predictor in another process, which is waited for."""

    async def expecting(self, request: "SentRequest") -> Expectation:
        """As `Predictor.expect`, on the event loop."""


class Predictor(Protocol):
    """Expects reuse from what each engine was sent before. Methods may be called from any thread and never raise."""

    def expect(self, request: SentRequest) -> Expectation:
        """What of this request its engine should have; it counts as sent from now on. Takes as long as hashing it."""

    def forget(self) -> None:
        """Drop all that engines were sent: nothing is expected of the next requests."""

    def cause(self, expected: Expectation, reuse: ReuseReport) -> GapCause | None:
        """Why less was reused than expected; None: no less was, or that is not known. Called when it has ended."""
