"""Tags around calls and thinking: in streamed text, in a vocabulary, in a grammar."""

import json

from tokenizers import Tokenizer


def partial_tag(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`; never the whole of it."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0


def tag_token(tokenizer: Tokenizer, text: str) -> int | None:
    """The id of the token that a tag has for itself; None where it is written in ordinary tokens."""
    added = tokenizer.get_added_tokens_decoder()
    return next((token_id for token_id, token in added.items() if token.content == text), None)


def tag(tokenizer: Tokenizer, text: str) -> str:
    """Lark for a tag: its own token where the vocabulary has one, since the model knows the tag by it.

    llguidance takes tokens that look like tags for control tokens, whose text no string in a grammar matches.
    """
    token_id = tag_token(tokenizer, text)
    return literal(text) if token_id is None else f"<[{token_id}]>"


def literal(text: str) -> str:
    """Lark for this very text."""
    return json.dumps(text, ensure_ascii=False)
