"""Attributes of spans and metrics: the GenAI semantic conventions' names, and our own where those have none.

Names: `docs/gen-ai` in open-telemetry/semantic-conventions-genai, of which none is called stable yet.
"""

from collections.abc import Mapping
from typing import TypeAlias

from engine_adapters.reuse.classes import predicted_within
from gateway.telemetry.facts import RequestFacts, RequestLabels
from gateway.telemetry.labels import OTHER
from gateway.tenants.tenant import DEFAULT
from gateway.transport.record import RequestRecord

Value: TypeAlias = str | bool | int | float | list[str]
Attributes: TypeAlias = dict[str, Value]

PROVIDER = "kvgate"  # whose form of the API this is; which engine answered is `kvgate.engine`


def who(labels: RequestLabels) -> Attributes:
    """What metrics are told apart by, and spans have as well."""
    return _known(
        {
            "gen_ai.operation.name": labels.operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": None if labels.model == OTHER else labels.model,
            "kvgate.engine": None if labels.engine == "none" else labels.engine,
        }
    )


def error_type(labels: RequestLabels) -> Attributes:
    """Empty for what went well."""
    return {} if labels.error is None else {"error.type": labels.error}


def of_span(record: RequestRecord, facts: RequestFacts) -> Attributes:
    """Everything the server's span says of one request. What is not known is left out."""
    canon = record.canon
    facts_known = {
        "http.request.method": record.method,
        "http.route": record.path,
        "http.response.status_code": record.status,
        "gen_ai.request.stream": record.stream,
        "gen_ai.request.choice.count": record.choices if record.choices != 1 else None,
        "gen_ai.response.finish_reasons": None if record.finish is None else [record.finish],
        "gen_ai.usage.input_tokens": facts.input_tokens,
        "gen_ai.usage.output_tokens": facts.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": facts.reused_tokens,
        "gen_ai.response.time_to_first_chunk": facts.ttft_s if record.stream else None,
        "kvgate.request.id": record.id,
        "kvgate.outcome": record.outcome,
        "kvgate.canon.policy": None if canon is None else canon.policy,
        "kvgate.canon.edits": None if canon is None else sum(canon.edits.values()),
        "kvgate.canon.applied": None if canon is None else canon.applied,
        "kvgate.canon.findings": None if canon is None else sum(canon.findings.values()),
    }
    about = who(facts.labels) | error_type(facts.labels)
    return about | _known(facts_known) | _way(record) | _reuse(record, facts)


def _way(record: RequestRecord) -> Attributes:
    """How it came to the replica that answered, or why it came to none."""
    routed = record.routed
    return _known(
        {
            "kvgate.tenant": None if record.tenant is DEFAULT else record.tenant.name,
            "kvgate.limited": record.limited,
            "kvgate.attempts": record.attempts if record.attempts > 1 else None,
            "kvgate.client_retries": record.retries or None,
            "kvgate.replica": record.replica,
            "kvgate.route.reason": None if routed is None else routed.reason,
            "kvgate.route.candidates": None if routed is None else len(routed.scores) or None,
            "kvgate.route.predicted_tokens": None if routed is None else routed.predicted,
            "kvgate.route.anywhere_tokens": None if routed is None else routed.anywhere,
        }
    )


def _reuse(record: RequestRecord, facts: RequestFacts) -> Attributes:
    labels = facts.labels
    if labels.reuse_class is None:
        return {}
    report = facts.reuse
    tiers = {f"kvgate.reuse.{tier}_tokens": tokens for tier, tokens in facts.by_tier.items()}
    return _known(
        {
            "kvgate.reuse.status": labels.reuse_status,
            "kvgate.reuse.class": labels.reuse_class,
            "kvgate.reuse.source": None if report is None or not report.source else report.source,
            # As told, right or wrong: what is inconsistent is kept and flagged.
            "kvgate.reuse.reused_tokens": None if report is None else report.reused,
            "kvgate.reuse.recomputed_tokens": facts.recomputed_tokens,
            "kvgate.reuse.predicted_tokens": predicted_within(
                record.expected.known().predicted,
                None if report is None else report.prompt,
                record.block_size,
            ),
            "kvgate.block_size": record.block_size,
            **tiers,
        }
    )


def _known(attributes: Mapping[str, Value | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}
