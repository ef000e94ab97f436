"""What canon says about one request or one log: edits it made, findings it left alone."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """One place that was rewritten, so that it can be shown and undone."""

    rule: str  # the rule's name, see `canon.policy.RULES`
    path: str  # where, for example `messages[0].content`
    before: str  # the text that was there; of a value that is not text, its JSON
    after: str
    moved_to: str | None = None  # the path that carries `before` now; None: it was rewritten in its place


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that breaks prefixes, or may, and was left alone."""

    rule: str
    path: str
    cause: str  # a short name of its kind, for example `relative time in content`
    detail: str = ""  # one sentence for people; never whole prompt texts
    offset: int | None = None  # characters into the text at `path`; None: the whole of it
    values: tuple[str, ...] = ()  # what was seen there, each at most 200 characters
    tokens_lost: int = 0  # prompt tokens computed again because of it, over all requests
    requests: int = 1  # how many were touched
    fix: str = ""  # what would end it


@dataclass(frozen=True, slots=True)
class CanonResult:
    """A canonical body and how it came about. `body` shares what was not edited with the body that came in."""

    body: Any  # dict, or whatever came in if it was no request
    edits: tuple[Edit, ...] = ()
    findings: tuple[Finding, ...] = ()
    body_changed: bool = False

    @property
    def changed(self) -> bool:
        """Whether `body` differs from the one that came in. Under `observe` there are edits, and nothing changed."""
        return self.body_changed
