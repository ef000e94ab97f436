"""The memory that requests of one gateway, or of several through a shared store, have in common."""

import logging
from typing import Any

from canon.memory.answer import answers_in
from canon.memory.conversation import Conversation
from canon.memory.local_store import LocalStore
from canon.memory.scoped_store import ScopedStore
from canon.memory.store import MemoryStore
from canon.policy import RULES_VERSION
from canon.requests import view_of
from canon.requests.view import RequestView
from canon.slots import CONFIRMATIONS

log = logging.getLogger(__name__)


class ConversationMemory:
    """Lets later turns of a conversation repeat what was sent, byte for byte. Safe to use from any thread.

    It holds prompt text (notes, tool-call arguments, JSON), bounded by its store. Whatever it has forgotten, results
    are still right, only less is reused. Nothing is shared between scopes.

    `all_recorded` says that every answer is recorded. Conversations of one scope that began alike, and that no session
    names, are then never taken for each other, even where one of them is seen for the first time.

    `slot_confirmations` says how many different values make a gap in a line a learned slot, which acts where a policy
    lets it.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        all_recorded: bool = False,
        slot_confirmations: int = CONFIRMATIONS,
    ) -> None:
        self.store = LocalStore() if store is None else store
        self._all_recorded = all_recorded
        self._slot_confirmations = slot_confirmations

    def open(
        self, view: RequestView, *, scope: str, session: str, rules_version: int = RULES_VERSION
    ) -> Conversation:
        """The conversation that a request continues; `rules_version` counts for one that begins."""
        body = view.draft.body
        return Conversation(
            ScopedStore(self.store, scope),
            view.kind,
            body,
            scope=scope,
            session=session,
            rules_version=rules_version,
            all_recorded=self._all_recorded,
            slot_confirmations=self._slot_confirmations,
        )

    def forget(self, scope: str) -> int:
        """Drop everything that a scope's requests left here; how many records those were."""
        return ScopedStore(self.store, scope).forget()

    def record(self, body: Any, response: Any, scope: str = "", session: str = "") -> None:
        """Keep what the model answered, so that a client's own way of writing it down does not matter later.

        `body` is the request, as it came or as it was sent; `response` the whole response, or the list of the parsed
        chunks or events of a streamed one. Bodies and responses of unknown shapes are ignored. `scope` and `session`
        are those given to `canonicalize`.
        """
        view = view_of(body)
        if view is None:
            return
        try:
            self.open(view, scope=scope, session=session).record(body, answers_in(response))
        except RecursionError:
            log.warning("an answer is not remembered: it or its request is nested too deeply")
