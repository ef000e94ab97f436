"""What a chat template itself does to prefixes, found out by asking it: no client can mend that."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from canon.errors import TemplateError
from canon.results import Finding
from canon.tokens.sandbox import RenderClock
from canon.tokens.template import ChatTemplate

_LATER = timedelta(days=401, hours=5)  # another year, month, day, weekday and hour
_THOUGHT = "what the probe thought"
_ASKED: list[dict[str, Any]] = [{"role": "user", "content": "what the probe asks"}]
_ANSWERED: list[dict[str, Any]] = [
    *_ASKED,
    {
        "role": "assistant",
        "content": "what the probe says",
        "reasoning_content": _THOUGHT,
        "thinking": _THOUGHT,
        "reasoning": _THOUGHT,
    },
]


def prefix_hazards(template: ChatTemplate) -> Iterator[Finding]:
    """Findings of rule `template`. A template that refuses the probes has none."""
    if _tells_time(template):
        yield Finding(
            "template",
            "",
            "a template that writes the date",
            "the model's chat template puts the time of rendering into prompts",
            fix="give it a fixed one (many take date_string in chat_template_kwargs), or a template without",
        )
    if _forgets_thoughts(template):
        yield Finding(
            "template",
            "",
            "a template that takes thinking out of earlier turns",
            "what the model thought is in its cache and no more in the prompt of the next turn",
            fix="switch the template to keep thinking, where it can; else each answer is computed once again",
        )


def _tells_time(template: ChatTemplate) -> bool:
    clock = template.clock()
    later = replace(clock, now=clock.now + _LATER)
    try:
        return _rendered(template, _ASKED, clock) != _rendered(template, _ASKED, later)
    except TemplateError:
        return False


def _forgets_thoughts(template: ChatTemplate) -> bool:
    """Whether a thought that is there while its turn is the newest is gone one turn later."""
    clock = template.clock()
    try:
        newest = _rendered(template, _ANSWERED, clock)
        earlier = _rendered(template, [*_ANSWERED, *_ASKED], clock)
    except TemplateError:
        return False
    return _THOUGHT in newest and _THOUGHT not in earlier


def _rendered(template: ChatTemplate, messages: Sequence[dict[str, Any]], clock: RenderClock) -> str:
    return template.render(messages, None, add_generation_prompt=False, extra={}, clock=clock)
