"""Metrics of canon for Prometheus: what it did to requests, and what it would have done."""

from prometheus_client import CollectorRegistry, Counter

from gateway.telemetry.labels import Bounded, Totals
from gateway.transport.record import CanonTold


class CanonMetrics:
    """Counts requests that have ended. Called from one thread; read from any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._totals: list[Totals] = []

        def counter(name: str, text: str, *labels: str) -> Totals:
            self._totals.append(totals := Totals(Counter(name, text, labels, registry=registry)))
            return totals

        self._edits = counter(
            "kvgate_canon_edits", "Edits by rule; applied=false: they were only counted.", "rule", "applied"
        )
        self._findings = counter("kvgate_canon_findings", "What breaks prefixes and was left alone.", "cause")
        self._bypassed = counter(
            "kvgate_canon_bypassed", "Bodies that could not be written again without a loss."
        )
        self._gained = counter(
            "kvgate_canon_gain_tokens", "Tokens that edits would have let be reused, estimated."
        )
        self._lost = counter(
            "kvgate_canon_lost_tokens", "Tokens that edits would have kept from being reused, estimated."
        )
        self._rules = Bounded()
        self._causes = Bounded()

    def ended(self, told: CanonTold) -> None:
        """Count what was done to one request, once it is settled."""
        if told.edits:
            applied = "true" if told.applied else "false"
            for rule, count in told.edits.items():
                self._edits.add(count, self._rules(rule), applied)
        for cause, count in told.findings.items():
            self._findings.add(count, self._causes(cause))
        if told.bypassed:
            self._bypassed.add(1)
        if told.gain_tokens:
            (self._gained if told.gain_tokens > 0 else self._lost).add(abs(told.gain_tokens))

    def settle(self) -> None:
        """Behind the last one of a batch."""
        for each in self._totals:
            each.settle()
