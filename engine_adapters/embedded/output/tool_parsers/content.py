"""Content between tool calls."""


class Content:
    """Passes content on, but holds space at its end back: next to a call it is no content.

    Space between two pieces of content is kept, even with calls in between; before the first content, when a
    call came first, and behind the last it is dropped. A text without calls passes unchanged.
    """

    def __init__(self) -> None:
        self._space: list[str] = []  # held back
        self._any = False  # content has been given out
        self._call = False  # a call has been seen

    def push(self, text: str) -> str:
        """Take content; returns what can be given out."""
        kept = text.rstrip()
        if not kept:
            self._space.append(text)
            return ""
        before, self._space = "".join(self._space), [text[len(kept) :]]
        kept = before + kept
        if self._call and not self._any:
            kept = kept.lstrip()
        self._any = True
        return kept

    def call(self) -> None:
        """A call begins here."""
        self._call = True

    def finish(self) -> str:
        """The space at the end of a text without calls."""
        return "" if self._call else "".join(self._space)
