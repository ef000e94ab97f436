"""The standard variables say whether anything is sent; what kvgate has not is refused with what to do."""

import pytest

from gateway.telemetry.otel.options import OtelOptions, OtelOptionsError, otel_options

URL = "http://collector:4318"
METRICS = "OTEL_EXPORTER_OTLP_METRICS"


@pytest.mark.parametrize(
    ("environ", "endpoint", "wanted"),
    [
        ({}, None, None),
        ({}, URL, OtelOptions(True, True, URL)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, None, OtelOptions(True, True)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{URL}/v1/traces"}, None, OtelOptions(True, False)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, None, OtelOptions(True, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_METRICS_EXPORTER": "none"}, None, OtelOptions(True, False)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_SDK_DISABLED": "TRUE"}, URL, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, URL, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, URL, OtelOptions(True, True, URL)),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None, None),
        ({"OTEL_SERVICE_NAME": "x"}, None, None),
        ({f"{METRICS}_TEMPORALITY_PREFERENCE": "delta"}, URL, OtelOptions(True, True, URL, delta=True)),
        ({f"{METRICS}_TEMPORALITY_PREFERENCE": "LowMemory"}, URL, OtelOptions(True, True, URL, delta=True)),
        ({f"{METRICS}_TEMPORALITY_PREFERENCE": "cumulative"}, URL, OtelOptions(True, True, URL)),
        ({f"{METRICS}_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"}, URL,
         OtelOptions(True, True, URL, exponential=True)),
    ],
)  # fmt: skip
def test_what_is_sent(environ: dict[str, str], endpoint: str | None, wanted: OtelOptions | None) -> None:
    assert otel_options(environ, endpoint) == wanted


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "4318"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, "http/protobuf"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(environ: dict[str, str], word: str) -> None:
    with pytest.raises(OtelOptionsError, match=word):
        otel_options(environ)
