"""Learns which lines of the system texts of one scope are a template with a value in it.

Templates are mined line by line as in Drain (He et al., "Drain: An Online Log Parsing Approach with Fixed Depth Tree",
ICWS 2017): lines are told apart by their number of words and their first word, and within such a group by how many
words agree with a template. What is added here: a gap counts only after enough different values were seen in it, one
line to a text; lines that a text has several of are a list, not a slot.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from canon.slots.source import Slot, SlotSource
from canon.slots.template import GAP, Words, fits, is_labelled_value, merged, similarity, words_of

CONFIRMATIONS = 8  # different values that make a gap a slot
_LEAST_SIMILAR = 0.5
_MOST_GROUPS = 512
_MOST_IN_GROUP = 8
_MOST_LINES = 1024  # of one request that are looked at
_FORMAT = 1

_GroupKey = tuple[int, str]


@dataclass(slots=True)
class _Template:
    words: Words
    values: set[str] = field(default_factory=set)  # digests, no texts
    listed: bool = False  # a text had two of its lines


class SlotLearner(SlotSource):
    """State of one scope: tenant, model and route. Bounded: least recently seen groups of templates are forgotten.

    Holds words of prompts, but of values only digests. Not safe to use from several threads at once.
    """

    def __init__(self, confirmations: int = CONFIRMATIONS) -> None:
        self.confirmations = confirmations
        self.changed = False  # since it was loaded: it is worth storing
        self._groups: OrderedDict[_GroupKey, list[_Template]] = OrderedDict()

    def observe(self, lines: Sequence[str]) -> list[Slot]:
        seen: dict[int, str] = {}
        found: dict[int, _Template] = {}
        for line in lines[:_MOST_LINES]:
            words = words_of(line)
            if words is None:
                continue
            template = self._learn(words)
            if seen.setdefault(id(template), line) != line and not template.listed:
                template.listed = self.changed = True
            found[id(template)] = template
        return [slot for template in found.values() if (slot := self._slot(template))]

    def confirmed(self) -> frozenset[str]:
        slots = (self._slot(each) for group in self._groups.values() for each in group)
        return frozenset(slot.template for slot in slots if slot and self.is_confirmed(slot) and slot.whole)

    def is_confirmed(self, slot: Slot) -> bool:
        return slot.values >= self.confirmations

    def _learn(self, words: Words) -> _Template:
        key = _key(words)
        group = self._groups.setdefault(key, [])
        self._groups.move_to_end(key)
        template = _closest(group, words)
        if template is None:
            self.changed = True
            template = _Template(words)
            group.append(template)
            del group[:-_MOST_IN_GROUP]
            while len(self._groups) > _MOST_GROUPS:
                self._groups.popitem(last=False)
        self._note(template, words)
        return template

    def _note(self, template: _Template, words: Words) -> None:
        if len(template.values) >= self.confirmations and fits(template.words, words):
            return
        together = merged(template.words, words)
        if together != template.words:
            if GAP in template.words:
                template.values.clear()  # the new gap has to be confirmed as well
            template.words, self.changed = together, True
        if len(template.values) < self.confirmations:
            before = len(template.values)
            template.values.add(_digest(words))
            self.changed = self.changed or len(template.values) > before

    def _slot(self, template: _Template) -> Slot | None:
        if template.listed or GAP not in template.words:
            return None
        return Slot(" ".join(template.words), len(template.values), is_labelled_value(template.words))

    def dump(self) -> bytes:
        """All of it, for a store; `load` gives it back."""
        groups = [
            [*key, [[each.words, sorted(each.values), each.listed] for each in group]]
            for key, group in self._groups.items()
        ]
        state = {"format": _FORMAT, "confirmations": self.confirmations, "groups": groups}
        return json.dumps(state, ensure_ascii=True, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes | None, confirmations: int = CONFIRMATIONS) -> "SlotLearner":
        """What was dumped; a learner that knows nothing where the data is missing, broken or of another format."""
        learner = cls(confirmations)
        try:
            state = json.loads(data) if data else {}
            if isinstance(state, dict) and state.get("format") == _FORMAT:
                learner._groups = OrderedDict(_group(row) for row in state["groups"][-_MOST_GROUPS:])
        except (ValueError, TypeError, KeyError, IndexError):
            learner._groups = OrderedDict()
        return learner


def _group(row: Any) -> tuple[_GroupKey, list[_Template]]:
    count, first, templates = row
    return (int(count), str(first)), [
        _Template(tuple(map(str, words)), set(map(str, values)), bool(listed))
        for words, values, listed in templates[-_MOST_IN_GROUP:]
    ]


def _key(words: Words) -> _GroupKey:
    """A first word with digits in it is a value already."""
    first = words[0]
    return len(words), GAP if any(char.isdigit() for char in first) else first


def _closest(group: list[_Template], words: Words) -> _Template | None:
    known = next((each for each in group if fits(each.words, words)), None)
    if known is not None or not group:
        return known
    best = max(group, key=lambda each: similarity(each.words, words))
    return best if similarity(best.words, words) >= _LEAST_SIMILAR else None


def _digest(words: Words) -> str:
    return blake2b("\n".join(words).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
