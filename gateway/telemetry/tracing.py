"""Who follows requests through their stages. Without OpenTelemetry a client's trace is carried on, and that is all."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import Metric

from gateway.telemetry.facts import RequestFacts
from gateway.telemetry.tally import Alike
from gateway.transport.record import RequestRecord
from gateway.transport.trace_context import client_trace


class Tracing:
    """Follows nothing itself."""

    def began(self, record: RequestRecord, headers: Mapping[bytes, bytes]) -> None:
        """A request for a model came; `record.trace` says from now on what goes on with it."""
        record.trace = client_trace(headers)

    def ended(self, record: RequestRecord, facts: RequestFacts, at: float) -> None:
        """It has ended, `at` seconds of `time.perf_counter`."""

    def observe(self, families: Callable[[], Iterable[Metric]]) -> None:
        """What to send, beside requests, from now on; called on any thread, again and again."""

    def settle(self, alike: Alike) -> None:
        """Those that `ended` was told of are all of a batch, which is `alike`."""

    async def aclose(self) -> None:
        """Send what was not sent yet, within bounds of time."""


NO_TRACING = Tracing()
