"""What must hold for any bytes: they are a request, or the system text and a tool result of one."""

import json
from typing import Any

from canon import canonicalize
from canon.policy import RULES, Policy

_ALL = Policy.named("full").with_rules(dict.fromkeys(RULES, "act"))
_POLICIES: tuple[str | Policy, ...] = ("safe", "full", _ALL)


def request_of(data: bytes) -> Any:
    """Bytes as a request: JSON that has a shape of one, or else text in the places that rules rewrite."""
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return {
        "messages": [
            {"role": "system", "content": text},
            {"role": "user", "content": text},
            {"role": "tool", "tool_call_id": "1", "content": text},
        ]
    }


def check(body: Any) -> None:
    """Raises AssertionError for what must not be."""
    held = json.dumps(body)
    for policy in _POLICIES:
        once = canonicalize(body, policy=policy)
        assert json.dumps(body) == held, "the input was written to"
        failed = [finding for finding in once.findings if finding.cause == "the rule failed"]
        assert not failed, failed
        twice = canonicalize(once.body, policy=policy)
        assert json.dumps(twice.body) == json.dumps(once.body), "not idempotent"
