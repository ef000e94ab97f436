"""JSON in a fence or among the prose of the system texts: reported; with a memory, replayed as it was first seen.

Switched to act, it writes it in the canonical form. Never: output forms, examples, schemas; what is not JSON to the
letter, or might lose something; user, assistant and tool text.
"""

import hashlib
from collections.abc import Sequence

from canon.context import SHOWN, RuleContext
from canon.requests.view import TextSlot
from canon.rules.json_spans import JsonSpan, json_spans

NAME = "json_in_text"

_FINDINGS = 10  # per text


def apply(context: RuleContext) -> None:
    for slot in context.view.system_texts():
        if '"' in slot.text and ("{" in slot.text or "[" in slot.text) and not _is_json(slot.text):
            _one_text(context, slot, list(json_spans(slot.text, context.lines(slot.text))))


def _is_json(text: str) -> bool:
    """Whether a whole text may be JSON, which is the business of another rule."""
    return text.lstrip()[:1] in ("{", "[")


def _one_text(context: RuleContext, slot: TextSlot, spans: Sequence[JsonSpan]) -> None:
    forms = [_form(context, slot.text, span) for span in spans]
    pieces: list[str] = []
    at = 0
    for span, form in zip(spans, forms, strict=True):
        pieces += (slot.text[at : span.start], form)
        at = span.end
    text = "".join(pieces) + slot.text[at:]
    if text != slot.text:
        context.rewrite(NAME, slot, text)
    elif not context.policy.acts(NAME):
        _report(context, slot, spans)


def _form(context: RuleContext, text: str, span: JsonSpan) -> str:
    if context.policy.acts(NAME):
        return span.form
    written = text[span.start : span.end]
    if context.conversation is None:
        return written
    means = hashlib.sha256(span.form.encode("utf-8", "surrogatepass")).digest()
    return context.conversation.first_form("json", means, written)


def _report(context: RuleContext, slot: TextSlot, spans: Sequence[JsonSpan]) -> None:
    loose = [span for span in spans if slot.text[span.start : span.end] != span.form]
    for span in loose[:_FINDINGS]:
        context.find(
            NAME,
            slot.path,
            "JSON in text in no fixed form",
            offset=span.start,
            values=(slot.text[span.start : span.end][:SHOWN],),
            fix="write it with sorted names and one spacing, or make it a part of its own",
        )
