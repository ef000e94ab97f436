"""Start what sends traces and metrics, where it is asked for and installed."""

import importlib.util
import logging

from gateway.telemetry.otel.options import OtelOptions
from gateway.telemetry.tally import Tally
from gateway.telemetry.tracing import NO_TRACING, Tracing

log = logging.getLogger("kvgate.gateway")

_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def open_tracing(options: OtelOptions | None, tally: Tally) -> Tracing:
    """Who follows requests, of which `tally` says what they add up to.

    One that only carries traces on where nothing is to be sent, or the extra is missing.
    """
    if options is None:
        return NO_TRACING
    missing = [name for name in _NEEDED if not _is_there(name)]
    if missing:
        fields = {"missing": ", ".join(missing), "install": "pip install 'kvgate[otel]'"}
        log.warning(
            "OpenTelemetry is configured and not installed: nothing is sent", extra={"fields": fields}
        )
        return NO_TRACING
    from gateway.telemetry.otel.exporting import OtelTracing

    return OtelTracing(options, tally)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
