"""Tags between which a model thinks."""

from collections.abc import Container

ThinkingTags = tuple[str, str]  # opening, closing

_KNOWN: tuple[ThinkingTags, ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
)


def find_thinking_tags(template: str, vocabulary: Container[str]) -> ThinkingTags | None:
    """The tags that the template writes or reads, else those that are tokens of their own; None where neither is."""
    for opening, closing in _KNOWN:
        if opening in template and closing in template:
            return opening, closing
    for opening, closing in _KNOWN:
        if opening in vocabulary and closing in vocabulary:
            return opening, closing
    return None


def ends_in_reasoning(text: str, tags: ThinkingTags | None, continued: str | None) -> bool:
    """Does the rendered prompt leave the model inside an opened tag?

    `continued` is the assistant text that the model is to go on from, if any. Elsewhere only the very end of the
    prompt counts: that is what the template wrote, while a tag further up may be part of somebody's message.
    """
    if tags is None:
        return False
    opening, closing = tags
    if continued is not None and opening in continued:
        return continued.rfind(opening) > continued.rfind(closing)
    return text.rstrip().endswith(opening)
