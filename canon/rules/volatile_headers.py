"""Lines such as `x-request-id: ...` at the very start of the system text, which clients and proxies put there.

They go to the tail note. It never touches a line behind the first one that is no such header, nor a header whose value
is prose.
"""

import re

from canon.context import RuleContext
from canon.moving import Cut, move

NAME = "volatile_headers"
_HEADER = re.compile(
    r"(?:x-[a-z0-9]+(?:-[a-z0-9]+)*|traceparent|tracestate|baggage|b3|uber-trace-id|sentry-trace|cf-ray"
    r"|(?:request|correlation|trace|session|idempotency)-(?:id|key))[ \t]?:[ \t]*(?=\S)",
    re.IGNORECASE,
)
_ANY_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+[ \t]?:[ \t]*(?=\S)")
_FIELD = re.compile(r"[^\s;,]+[;,]?")
_MOST_LINES = 32
_MOST_PARTS = 4


def apply(context: RuleContext) -> None:
    for _ in range(_MOST_PARTS):
        slot = next((slot for slot in context.view.system_texts() if slot.text.strip()), None)
        if slot is None:
            return
        cut, rest = _headers(slot.text)
        if cut is None or not move(context, NAME, slot, [cut]) or rest < len(slot.text):
            return


def _headers(text: str) -> tuple[Cut | None, int]:
    """The leading header lines as one cut, and where the rest of the text begins."""
    start, at, last = 0, 0, -1
    for _ in range(_MOST_LINES):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].rstrip("\r")
        if line.strip() and not _is_header(line):
            break
        if line.strip():
            start, last = (at if last < 0 else start), at + len(line)
        if end == len(text):
            at = end
            break
        at = end + 1
    return (Cut(start, last, "header") if last >= 0 else None), at


def _is_header(line: str) -> bool:
    """A known name with fields, `a=b; c=d`, or one word with a digit in it; or any name like one, with fields."""
    if len(line) > 4096:
        return False
    found = _HEADER.match(line)
    if found is None:
        found = _ANY_NAME.match(line)
        return found is not None and all("=" in field for field in _FIELD.findall(line[found.end() :]))
    value = line[found.end() :].strip()
    fields = _FIELD.findall(value)
    if len(fields) == 1:
        return any(char.isdigit() for char in value)
    return all("=" in field or field.endswith((";", ",")) for field in fields)
