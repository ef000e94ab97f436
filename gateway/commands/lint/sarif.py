"""Lint's report in SARIF 2.1.0, which code hosts show beside the lines."""

from typing import Any

from canon.lint import LintReport
from canon.results import Finding
from gateway.commands.lint.log_files import Place

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MUCH = 0.05  # of all prompt tokens


def as_sarif(report: LintReport, places: list[Place], version: str) -> dict[str, Any]:
    """The whole log file, as plain data."""
    kinds = {finding.rule: finding for finding in reversed(report.findings)}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "kvgate lint", "version": version, "rules": _rules(kinds)}},
                "results": [
                    _result(finding, places[seen], report.prompt_tokens)
                    for finding, seen in zip(report.findings, report.first_seen, strict=True)
                ],
                "properties": {"reuse_before": report.reuse_before, "reuse_after": report.reuse_after},
            }
        ],
    }


def _rules(kinds: dict[str, Finding]) -> list[dict[str, Any]]:
    return [
        {
            "id": rule,
            "shortDescription": {"text": kinds[rule].cause},
            "help": {"text": kinds[rule].fix or kinds[rule].cause},
        }
        for rule in sorted(kinds)
    ]


def _result(finding: Finding, place: Place, prompt_tokens: int) -> dict[str, Any]:
    much = finding.tokens_lost >= _MUCH * prompt_tokens
    message = (
        f"{finding.cause} at {finding.path}: {finding.tokens_lost:,} tokens in {finding.requests:,} requests."
    )
    return {
        "ruleId": finding.rule,
        "level": "warning" if much else "note",
        "message": {"text": f"{message} {finding.fix}".strip()},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": place.log},
                    "region": {"startLine": place.line},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.path}],
            }
        ],
        "properties": {"tokens_lost": finding.tokens_lost, "requests": finding.requests},
    }
