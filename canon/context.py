"""What a rule sees and says while it works on one request."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from canon.policy import Policy
from canon.requests.draft import Draft
from canon.requests.paths import Path, path_text
from canon.requests.view import RequestView, TextSlot
from canon.results import Edit, Finding
from canon.text import Line, lines_of

if TYPE_CHECKING:
    from canon.memory.conversation import Conversation
    from canon.slots import ConversationSlots

SHOWN = 200  # characters of a value that a finding shows


@dataclass(frozen=True, slots=True)
class Moved:
    """A piece of text taken out of the system texts, which the tail note must carry word for word."""

    rule: str
    path: str  # where it was
    text: str  # with its label, its heading and its tags


@dataclass(slots=True)
class RuleContext:
    """One request on its way through the rules."""

    view: RequestView
    policy: Policy
    conversation: "Conversation | None" = None  # what a memory knows of it; None: rules do without
    slots: "ConversationSlots | None" = None  # what was learned from other requests; None: nothing
    edits: list[Edit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)  # in the order in which they stood
    _lines: dict[str, list[Line]] = field(default_factory=dict)  # by text

    @property
    def draft(self) -> Draft:
        return self.view.draft

    def lines(self, text: str) -> list[Line]:
        """The lines of a text of this request, found once; rules do not write to the list."""
        lines = self._lines.get(text)
        if lines is None:
            lines = self._lines[text] = lines_of(text)
        return lines

    def where(self, path: Path) -> str:
        return path_text(self.draft.body, path)

    def rewrite(self, rule: str, slot: TextSlot, text: str) -> TextSlot:
        """Give a text slot a new text, and note the edit. The rule must be one that acts."""
        self.draft.set(slot.path, text)
        self.edits.append(Edit(rule, self.where(slot.path), slot.text, text))
        return replace(slot, text=text)

    def rewrite_or_find(self, rule: str, slot: TextSlot, text: str, cause: str, fix: str = "") -> TextSlot:
        """Rewrite if the rule acts; else say what it would do."""
        if self.policy.acts(rule):
            return self.rewrite(rule, slot, text)
        at = _first_difference(slot.text, text)
        shown = tuple(side[at : at + 40] for side in (slot.text, text))
        self.find(rule, slot.path, cause, offset=at, values=shown, fix=fix or f"let the rule {rule} act")
        return slot

    def find(self, rule: str, path: Path, cause: str, **more: Any) -> None:
        """Report what is left alone; `more` are fields of Finding."""
        self.findings.append(Finding(rule, self.where(path), cause, **more))


def _first_difference(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:  # left[:low] == right[:low]
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
