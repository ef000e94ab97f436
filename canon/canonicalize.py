"""The entry: one request body through the rules of a policy."""

import logging
from typing import TYPE_CHECKING, Any

from canon import tail_note
from canon.context import RuleContext
from canon.policy import Policy
from canon.requests import view_of
from canon.requests.draft import Draft
from canon.results import CanonResult, Finding
from canon.rules import APPLY

if TYPE_CHECKING:
    from canon.memory import ConversationMemory

log = logging.getLogger(__name__)


def canonicalize(
    body: Any,
    policy: str | Policy = "safe",
    memory: "ConversationMemory | None" = None,
    scope: str = "",
    *,
    session: str = "",
) -> CanonResult:
    """Rewrite a request so that its prefix matches others like it, and say what was done.

    `body` is a Chat Completions, Completions, Responses or Anthropic messages request as parsed JSON; it is never
    written to. Whatever it is, there is an answer: what cannot be handled comes back unchanged, with a finding.

    With a `memory`, later turns of a conversation repeat what was sent in earlier ones. It shares nothing between
    scopes (tenant and model). `session` names the conversation, where the client says which it is, in a header for
    example.

    Raises:
        PolicyError: no policy is called that.
    """
    chosen = Policy.named(policy) if isinstance(policy, str) else policy
    view = view_of(body) if chosen.name != "off" else None
    if view is None:
        return CanonResult(body)
    try:
        context = RuleContext(view, chosen)
        # Under `observe` nothing is sent as it is rewritten here, so there is nothing to remember.
        if memory is not None and chosen.applies and chosen.acts("conversation_memory"):
            version = chosen.rules_version
            context.conversation = memory.open(view, scope=scope, session=session, rules_version=version)
        return _run(body, context)
    except (RecursionError, MemoryError) as error:
        finding = Finding("canon", "", "too large", f"left alone: {type(error).__name__}")
        return CanonResult(body, findings=(finding,))


def _run(body: dict[str, Any], context: RuleContext) -> CanonResult:
    for rule, apply in APPLY.items():
        if context.policy.runs(rule):
            apply(context)
    if context.conversation is None:
        tail_note.place(context)
    tail_note.settle(context)
    draft: Draft = context.draft
    applied = context.policy.applies and draft.changed
    return CanonResult(
        draft.body if applied else body, tuple(context.edits), tuple(context.findings), body_changed=applied
    )
