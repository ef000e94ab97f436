"""What a rule is told about slots."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """A line that was seen with different values."""

    template: str  # its words, `GAP` for each that differed
    values: int  # different ones seen, counted up to the number that confirms a slot
    whole: bool  # what differs is a value behind a label, so that the line could move


class SlotSource(ABC):
    """Learns from the requests of one scope (tenant, model and route), and tells what it has learned."""

    @abstractmethod
    def observe(self, lines: Sequence[str]) -> list[Slot]:
        """Learn from the lines of one request's system texts, and give the slots among them."""

    @abstractmethod
    def confirmed(self) -> frozenset[str]:
        """Templates of the slots that may act, in conversations that begin from now on."""


@dataclass(frozen=True, slots=True)
class ConversationSlots:
    """What a rule gets: the scope's source, and the templates that act in this conversation from its beginning."""

    source: SlotSource
    acting: frozenset[str] = frozenset()
