"""What earlier requests of a conversation were sent as, so that later ones repeat it byte for byte.

It holds prompt text: notes, tool-call arguments, JSON. It is bounded, forgets by itself, and is never logged.
"""

from canon.memory.conversation_memory import ConversationMemory
from canon.memory.local_store import LocalStore
from canon.memory.store import MemoryStore

__all__ = ["ConversationMemory", "LocalStore", "MemoryStore"]
