"""How prompts are rendered is the operator's to say: what a request would change of it is refused, for every engine.

A template is a program. One that comes in a request would run where prompts are rendered, and would make of canonical
messages whatever it likes; so would the arguments that a template is called with beside its variables.
"""

from typing import Any

from gateway.errors import invalid
from gateway.wire.validation import WireModel

# What a template is rendered with; a client may not replace it through chat_template_kwargs.
_RESERVED_KWARGS = frozenset(
    {
        "messages", "tools", "documents", "chat_template", "tokenize", "add_generation_prompt",
        "continue_final_message", "conversation", "tokenizer", "return_dict", "return_tensors", "padding",
        "truncation", "max_length", "tokenizer_kwargs", "bos_token", "eos_token", "pad_token", "unk_token",
    }
)  # fmt: skip


class TemplateFields(WireModel):
    """Fields that would change how a prompt is rendered. None of them may be set; template variables may."""

    chat_template: Any = None
    tokenize: Any = None
    trust_remote_code: Any = None
    chat_template_kwargs: Any = None


def check_template(fields: TemplateFields) -> None:
    """Refuse a template or a switch of its rendering that comes in a request; raises ApiError 400."""
    if fields.chat_template is not None:
        raise invalid("A chat template sent by a client is refused; the operator sets it.", "chat_template")
    if fields.tokenize is not None:
        raise invalid("The server decides how prompts are tokenized.", "tokenize")
    if fields.trust_remote_code is not None:
        raise invalid("The operator decides whether code of a model is run.", "trust_remote_code")
    given = fields.chat_template_kwargs
    if not isinstance(given, dict):
        return
    for name in sorted(_RESERVED_KWARGS.intersection(given)):
        raise invalid(f"'{name}' cannot be set by a client.", f"chat_template_kwargs.{name}")
