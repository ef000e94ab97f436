"""Slots learned from traffic: the places where one template of a line is sent with ever other values."""

from canon.slots.learner import CONFIRMATIONS, SlotLearner
from canon.slots.source import ConversationSlots, Slot, SlotSource

__all__ = ["CONFIRMATIONS", "ConversationSlots", "Slot", "SlotLearner", "SlotSource"]
