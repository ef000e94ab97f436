"""What the gateway tells those who watch it: metrics for Prometheus and OpenTelemetry, and traces. Never any text."""
