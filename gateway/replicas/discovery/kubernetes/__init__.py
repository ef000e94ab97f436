"""Replicas behind a Service of Kubernetes: its EndpointSlices, listed once and then watched."""
