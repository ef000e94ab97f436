"""Finds messages that a template leaves out without a word."""

import json
from collections.abc import Callable

from msgspec.structs import replace

from canon.errors import TemplateError
from canon.tokens.conversation import Message
from canon.tokens.rendering import Conversation

# Users' and assistants' messages are left alone: templates know them, and drop old thinking on purpose.
_EXEMPT = frozenset(("user", "assistant"))
_ENOUGH = 200  # characters of a message that, found in the prompt, say that it is there


def refuse_dropped(
    conversation: Conversation, text: str, render: Callable[[Conversation], str], names: list[str]
) -> None:
    """Raises `TemplateError` for a message without which the rendered text is the same.

    `names` are the roles as the request gave them, one a message. A message whose words are in the text is there;
    only for the others is the conversation rendered again without it.
    """
    missing = [
        i
        for i, message in enumerate(conversation.messages)
        if message["role"] not in _EXEMPT and not _is_in(message, text)
    ]
    for i in missing[:8]:  # each costs a rendering; one is enough to refuse
        rest = [*conversation.messages[:i], *conversation.messages[i + 1 :]]
        if rest and _renders_same(replace(conversation, messages=rest), text, render):
            raise TemplateError(
                f"this model's chat template leaves out this message (role {names[i]!r})",
                f"messages[{i}].role",
            )


def _is_in(message: Message, text: str) -> bool:
    content = message.get("content")
    pieces = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    starts = [piece.strip()[:_ENOUGH] for piece in pieces]
    return all(start in text or json.dumps(start, ensure_ascii=False)[1:-1] in text for start in starts)


def _renders_same(conversation: Conversation, text: str, render: Callable[[Conversation], str]) -> bool:
    try:
        return render(conversation) == text
    except TemplateError:
        return False  # the template wants the message there
