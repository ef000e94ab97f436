"""The command itself: reads one body and shows its edits, as the gateway would make them."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from canon import CanonResult, canonicalize
from canon.errors import CanonError
from gateway.canonical.bypass import bypass
from gateway.commands.canon.diff import print_result
from gateway.commands.wording import unreadable
from gateway.errors import ApiError
from gateway.transport.body import parse_object
from gateway.wire.round_trip import round_trip_loss

FINE, WOULD_CHANGE, UNUSABLE = 0, 1, 2  # exit codes


def run(file: Path, policy: str, *, as_json: bool, check: bool) -> int:
    """Canonicalize the body and print what was done; the exit code."""
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        result = canonical(raw, policy)
    except OSError as error:
        return _unusable(unreadable(error))
    except CanonError as error:
        return _unusable(str(error))
    except ApiError as error:
        return _unusable(f"{_name(file)}: {error.message}{_hint(raw)}")
    if as_json:
        _print_json(result, policy)
    else:
        console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
        print_result(result, policy, console)
    return WOULD_CHANGE if check and result.changed else FINE


def canonical(raw: bytes, policy: str) -> CanonResult:
    """What the gateway makes of a body's bytes. Raises ApiError where it would refuse them, and PolicyError."""
    body = parse_object(raw.strip())
    result = canonicalize(body, policy)
    loss = round_trip_loss(raw, body) if result.changed else None
    return result if loss is None else bypass(body, loss)


def _print_json(result: CanonResult, policy: str) -> None:
    told: dict[str, Any] = {
        "policy": policy,
        "changed": result.changed,
        "edits": [asdict(edit) for edit in result.edits],
        "findings": [asdict(finding) for finding in result.findings],
        "body": result.body,
    }
    print(json.dumps(told, indent=1))


def _hint(raw: bytes) -> str:
    """JSON Lines are the most likely mistake."""
    try:
        orjson.loads(raw.strip().split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return ""
    return (
        " Its first line is JSON of its own: for a log there is kvgate lint." if b"\n" in raw.strip() else ""
    )


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _unusable(why: str) -> int:
    print(f"kvgate canon: {why}", file=sys.stderr)
    return UNUSABLE
