"""The entry: one request body through the rules of a policy."""

import logging
from typing import TYPE_CHECKING, Any

from canon import tail_note
from canon.context import RuleContext
from canon.policy import Policy
from canon.requests import view_of
from canon.requests.draft import Draft
from canon.results import CanonResult, Finding
from canon.rules import APPLY, Apply

if TYPE_CHECKING:
    from canon.memory import ConversationMemory

log = logging.getLogger(__name__)

_LOOKING_AT_ENDS = ("newlines", "unicode", "whitespace", "dynamic_values", "volatile_headers")
_LAST_THAT_MOVES = "volatile_headers"
_ROUNDS = 4


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
    chosen = Policy.parse(policy) if isinstance(policy, str) else policy
    if chosen.name == "off":
        return CanonResult(body)
    view = view_of(body)
    if view is None:
        return CanonResult(body, findings=(Finding("canon", "", "not a request that canon knows"),))

    def open_memory(context: RuleContext) -> None:
        # Under `observe` nothing is sent as it is rewritten here, so there is nothing to remember.
        if memory is not None and chosen.applies and chosen.acts("conversation_memory"):
            version = chosen.rules_version
            context.conversation = memory.open(view, scope=scope, session=session, rules_version=version)
            context.slots = context.conversation.slots
            context.policy = chosen.with_version(context.conversation.rules_version)

    return _run(body, RuleContext(view, chosen), open_memory)


def _run(body: dict[str, Any], context: RuleContext, open_memory: Apply) -> CanonResult:
    steps: list[tuple[str, Apply]] = [("conversation_memory", open_memory)]
    for rule, apply in APPLY.items():
        if context.policy.runs(rule):
            steps.append((rule, apply))
        if rule == _LAST_THAT_MOVES:
            steps.append((rule, _settle))
    steps.append(("tail_note", _place_note))
    for name, step in steps:
        if failure := _failure(step, context):
            log.error("canon: the rule %s failed with %s; the request goes on unchanged", name, failure)
            finding = Finding(name, "", "the rule failed", f"the request is left as it came: {failure}")
            return CanonResult(body, findings=(*context.findings, finding))
    draft: Draft = context.draft
    applied = context.policy.applies and draft.changed
    return CanonResult(
        draft.body if applied else body, tuple(context.edits), tuple(context.findings), body_changed=applied
    )


def _settle(context: RuleContext) -> None:
    """Where something moved, texts begin and end anew: the rules that look at that run again, until nothing moves."""
    settled = 0
    for _ in range(_ROUNDS):
        if len(context.moved) == settled:
            return
        settled = len(context.moved)
        for rule in filter(context.policy.runs, _LOOKING_AT_ENDS):
            context.findings = [finding for finding in context.findings if finding.rule != rule]
            APPLY[rule](context)


def _place_note(context: RuleContext) -> None:
    if context.conversation is None:
        tail_note.place(context)
    tail_note.settle(context)


def _failure(step: Apply, context: RuleContext) -> str:
    """Runs one step. The name of the error, should it raise one; its message may show prompts, and stays here."""
    try:
        step(context)
    except Exception as error:  # noqa: BLE001  A request must not fail for a rule that does.
        return type(error).__name__
    return ""
