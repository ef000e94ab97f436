"""Traces and metrics to an OpenTelemetry collector. Only `options` and `opening` can be imported without the extra."""
