"""Thinking and answer, told apart in streamed text."""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Tokenizer

from engine_adapters.embedded.output.tags import literal, partial_tag, tag, tag_token


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """What a family of models puts around its thinking."""

    start: str = "<think>"
    end: str = "</think>"


@dataclass(frozen=True, slots=True)
class Thought:
    """Thinking text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Text behind the thinking, or all of it where there is none; never empty."""

    text: str


# The first tags that a chat template or a vocabulary shows are the model's. Whoever renders the prompts tells by the
# same tags, in the same order, whether one ends inside its thinking.
FAMILIES = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("<thinking>", "</thinking>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<reasoning>", "</reasoning>"),
    ReasoningTags("<thought>", "</thought>"),
)


def detect_reasoning(template: str | None, tokenizer: Tokenizer | None = None) -> ReasoningTags | None:
    """The tags of models with this chat template or vocabulary; None for models that do not think."""
    text, vocabulary = template or "", _added(tokenizer)
    both = [tags for tags in FAMILIES if tags.start in text and tags.end in text]
    tokens = [tags for tags in FAMILIES if tags.start in vocabulary and tags.end in vocabulary]
    closed = [tags for tags in FAMILIES if tags.end in text]  # templates that only cut old thinking off
    return next(iter([*both, *tokens, *closed]), None)


def _added(tokenizer: Tokenizer | None) -> set[str]:
    return set() if tokenizer is None else {t.content for t in tokenizer.get_added_tokens_decoder().values()}


def behind_reasoning(grammar: str, tags: ReasoningTags, tokenizer: Tokenizer, starts_inside: bool) -> str:
    """A Lark grammar for the same text behind one block of thinking, which may be missing unless already begun.

    Args:
        grammar: Lark whose first rule is `start`.
    """
    answer = "answer:" + grammar.removeprefix("start:")
    if tag_token(tokenizer, tags.end) is not None:
        thinking = ["thinking: TEXT " + tag(tokenizer, tags.end), r"TEXT: /(.|\n)*/"]
    else:
        thinking = [f"thinking[suffix={literal(tags.end)}]: " + r"/(.|\n)*/"]
    block = "thinking" if starts_inside else f"({tag(tokenizer, tags.start)} thinking)?"
    return "\n".join([f"start: {block} BREAK answer", r"BREAK: /\n{0,2}/", *thinking, answer])


class ReasoningParser:
    """Splits one choice's text into one block of thinking at its beginning, and the answer behind it.

    Tags further behind are text: an answer may speak about them. Line breaks next to the tags belong to neither.

    Args:
        starts_inside: the prompt ends inside an opened tag, so thinking comes first without one.
    """

    def __init__(self, start: str = "<think>", end: str = "</think>", starts_inside: bool = False) -> None:
        self._start = start
        self._end = end
        self._inside = starts_inside
        self._text = ""  # held back
        self._state: Callable[[], list[Thought | Answer]] | None = (
            self._before
        )  # None: all that follows is answer

    @property
    def inside(self) -> bool:
        """Whether the text so far ends inside the thinking."""
        return self._inside

    def push(self, text: str) -> list[Thought | Answer]:
        """Take the next piece of text; returns what is certain by now."""
        if self._state is None:
            return [Answer(text)] if text else []
        self._text += text
        return self._state()

    def finish(self) -> list[Thought | Answer]:
        """The text ends here, whole or cut off; returns what was held back."""
        text, self._text = self._text, ""
        state, self._state = self._state, None
        if self._inside:
            # What was held back behind earlier thinking begins with breaks that are within it.
            text = text.rstrip("\n") if state == self._within else text.strip("\n")
            return [Thought(text)] if text else []
        return [Answer(text)] if text and state != self._behind else []

    def _before(self) -> list[Thought | Answer]:
        beginning = self._text.lstrip()
        if beginning.startswith(self._start):
            self._inside = True
            self._text = beginning[len(self._start) :]
        elif self._start.startswith(beginning):
            return []
        if not self._inside:
            self._state = None
            return [Answer(self._drain(len(self._text)))]
        self._state = self._within_start
        return self._state()

    def _within_start(self) -> list[Thought | Answer]:
        self._text = self._text.lstrip("\n")
        if not self._text:
            return []
        self._state = self._within
        return self._state()

    def _within(self) -> list[Thought | Answer]:
        at = self._text.find(self._end)
        found = at >= 0
        if not found:
            at = len(self._text) - partial_tag(self._text, self._end)
        thought = self._drain(len(self._text[:at].rstrip("\n")))
        pieces: list[Thought | Answer] = [Thought(thought)] if thought else []
        if found:
            self._text = self._text.lstrip("\n").removeprefix(self._end)
            self._inside = False
            self._state = self._behind
            pieces += self._behind()
        return pieces

    def _behind(self) -> list[Thought | Answer]:
        self._text = self._text.lstrip("\n")
        if not self._text:
            return []
        self._state = None
        return [Answer(self._drain(len(self._text)))]

    def _drain(self, size: int) -> str:
        text, self._text = self._text[:size], self._text[size:]
        return text
