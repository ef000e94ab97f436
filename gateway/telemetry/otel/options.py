"""Whether and what is sent by OpenTelemetry: its standard environment variables, or an address in the configuration.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ has them all; those that are not read
here (headers, timeouts, samplers, queue sizes, intervals, resource attributes) are read by OpenTelemetry's own SDK.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Signal = Literal["TRACES", "METRICS"]

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAMS = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"


class OtelOptionsError(Exception):
    """Something is asked for that kvgate does not have; the message says what to set instead."""


@dataclass(frozen=True, slots=True)
class OtelOptions:
    """What is sent, and where."""

    traces: bool
    metrics: bool
    endpoint: str | None = None  # of a collector, without `/v1/...`; None: as the environment says
    delta: bool = False  # counts are those since they were last sent, and not all
    exponential: bool = False  # histograms have the SDK's buckets, and not those of the conventions
    instance: str | None = None  # what tells this process from others of its service; None: nothing has to


def otel_options(environ: Mapping[str, str], endpoint: str | None = None) -> OtelOptions | None:
    """What the environment and the configuration's `endpoint` ask for; None: nothing is sent.

    Raises:
        OtelOptionsError: another exporter or protocol than OTLP over HTTP is asked for.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    traces, metrics = (_wanted(signal, environ, endpoint) for signal in ("TRACES", "METRICS"))
    if not (traces or metrics):
        return None
    preferred = environ.get(_TEMPORALITY, "").strip().upper()
    buckets = environ.get(_HISTOGRAMS, "")
    return OtelOptions(
        traces,
        metrics,
        endpoint,
        delta=preferred in ("DELTA", "LOWMEMORY"),
        exponential=buckets == "base2_exponential_bucket_histogram",
    )


def _wanted(signal: Signal, environ: Mapping[str, str], endpoint: str | None) -> bool:
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    names = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter == "none" or not (exporter or endpoint or any(environ.get(name) for name in names)):
        return False
    if exporter not in ("", "otlp"):
        raise OtelOptionsError(f"OTEL_{signal}_EXPORTER is {exporter!r:.40}; there are otlp and none")
    name = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
    protocol = environ.get(name) or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise OtelOptionsError(
            f"the protocol of OpenTelemetry is set to {protocol!r:.40}; kvgate has http/protobuf, which collectors "
            f"take on port 4318: set {name} to it, and the endpoint to that port"
        )
    return True
