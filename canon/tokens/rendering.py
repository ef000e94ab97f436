"""One conversation through one template: the text, and which of its control tokens are the template's own."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from canon.tokens.continuation import ContinuedMessage
from canon.tokens.conversation import Message
from canon.tokens.plain_data import map_strings, strings
from canon.tokens.sandbox import RenderClock
from canon.tokens.stand_ins import ControlTokens, StandIns
from canon.tokens.template import ChatTemplate, MissingValueError


class Conversation(msgspec.Struct, frozen=True):
    """Everything one rendering depends on, in the template's form."""

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] | None
    extra: Mapping[str, Any]  # the client's template variables
    add_generation_prompt: bool
    continue_final_message: bool

    def content(self) -> list[str]:
        """All text that somebody other than the template wrote; roles are no text."""
        found: list[str] = []
        for message in self.messages:
            for name, value in message.items():
                if name == "role":
                    continue
                found.append(name)
                if type(value) is str:  # as most are
                    found.append(value)
                else:
                    found += strings(value)
        if self.tools or self.extra:
            found += [*strings(self.tools), *strings(dict(self.extra))]
        return found

    def marked(self, stand_ins: StandIns) -> "Conversation":
        mark = stand_ins.mark
        return replace(
            self,
            messages=[{"role": m["role"], **map_strings(_without_role(m), mark)} for m in self.messages],
            tools=map_strings(self.tools, mark),
            extra=map_strings(dict(self.extra), mark),
        )


class RenderedChat(msgspec.Struct, frozen=True):
    """`control` are the (start, end) of the template's own special tokens in `text`, in order."""

    text: str
    control: list[tuple[int, int]]
    suspicious: bool  # special tokens are, or may be, written elsewhere in the text too


def render_text(template: ChatTemplate, conversation: Conversation, clock: RenderClock) -> str:
    """The plain rendering. Raises `TemplateError`."""
    try:
        return _render(template, conversation, clock)
    except MissingValueError:
        # OpenAI leaves `content` out where an assistant only calls tools; older templates add it up regardless.
        filled = [m if "content" in m else {**m, "content": ""} for m in conversation.messages]
        if filled == list(conversation.messages):
            raise
        return _render(template, replace(conversation, messages=filled), clock)


def _render(template: ChatTemplate, conversation: Conversation, clock: RenderClock) -> str:
    messages = conversation.messages
    continued = ContinuedMessage(template, messages) if conversation.continue_final_message else None
    text = template.render(
        messages if continued is None else continued.messages,
        conversation.tools,
        add_generation_prompt=conversation.add_generation_prompt,
        extra=conversation.extra,
        clock=clock,
    )
    return text if continued is None else continued.cut(text)


def render_controlled(
    template: ChatTemplate, conversation: Conversation, tokens: ControlTokens, text: str, clock: RenderClock
) -> RenderedChat:
    """Finds which control tokens of `text`, the plain rendering, are the template's own.

    Where the template's logic hangs on the very characters that stand-ins replace, the text may come out
    differently; then the safe one of the two is returned.
    """
    content = conversation.content()
    if not tokens.may_be_written_in(content):
        return RenderedChat(text, tokens.of_template(text), suspicious=False)
    stand_ins = tokens.stand_ins(content)
    marked = render_text(template, conversation.marked(stand_ins), clock)
    restored, own = stand_ins.restore(marked), tokens.of_template(marked)
    if (
        restored != text
        and _same_tokens(text, marked, own, tokens)
        and not any(map(tokens.scanner.found_in, content))
    ):
        return _unmarked(text, tokens)
    return RenderedChat(restored, own, suspicious=True)


def _same_tokens(text: str, marked: str, own: Sequence[tuple[int, int]], tokens: ControlTokens) -> bool:
    """Does the plain rendering have the very tokens that the template wrote, and no more?"""
    return [text[a:b] for a, b in tokens.scanner.spans(text)] == [marked[a:b] for a, b in own]


def _unmarked(text: str, tokens: ControlTokens) -> RenderedChat:
    return RenderedChat(text, tokens.of_template(text), suspicious=True)


def _without_role(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "role"}


def role_names(template: ChatTemplate) -> frozenset[str]:
    """Strings in the template that may be names of roles."""
    return frozenset(c for c in template.constants if re.fullmatch(r"[A-Za-z][\w.-]{0,63}", c))
