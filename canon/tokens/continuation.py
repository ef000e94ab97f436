"""Prompts that end inside the last message, for the model to go on from."""

from collections.abc import Sequence
from typing import Any

from canon.errors import TemplateError
from canon.tokens.conversation import Message
from canon.tokens.template import ChatTemplate

# Its last blank tells whether the template trims the end of a message. The text is Transformers' own, so that
# templates which look for it (there are some) do the same here.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


class ContinuedMessage:
    """The last message with a tag at its end, by which the rendered text is cut. Raises `TemplateError`."""

    def __init__(self, template: ChatTemplate, messages: Sequence[Message]) -> None:
        self._path = f"messages[{len(messages) - 1}].content"
        content = messages[-1].get("content")
        if content is None or not template.mentions("content"):
            raise TemplateError("the last message has no content to continue", self._path)
        self._text, tagged = self._tagged(content)
        self.messages = [*messages[:-1], {**messages[-1], "content": tagged}]

    def _tagged(self, content: Any) -> tuple[str, Any]:
        """The text to go on from, and the content with the tag behind that text."""
        if isinstance(content, str):
            return content, content + _TAG
        for at in range(len(content) - 1, -1, -1):
            part = content[at]
            if "text" in part:
                return part["text"], [
                    *content[:at],
                    {**part, "text": part["text"] + _TAG},
                    *content[at + 1 :],
                ]
        raise TemplateError("the last message has no text to continue", self._path)

    def cut(self, rendered: str) -> str:
        """What comes before the tag; blanks that the template trimmed are not put back."""
        at = rendered.rfind(_TAG.strip())
        if at < 0 or self._text.strip() not in rendered:
            raise TemplateError(
                "the chat template does not keep the message that is to be continued", self._path
            )
        if rendered.startswith(_TAG, at):
            return rendered[:at]
        return rendered[:at].rstrip()
