"""One request through canon, and what the gateway keeps of it."""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from canon import CanonResult, ConversationMemory, Policy, canonicalize
from canon.errors import PolicyError
from canon.memory import LocalStore, MemoryStore
from gateway.canonical.bypass import bypass
from gateway.canonical.clean import CleanRequests
from gateway.canonical.gain import GainCounter
from gateway.canonical.policies import HEADER, Policies, Route, parse_policy
from gateway.canonical.recorder import Recording
from gateway.errors import ApiError, invalid
from gateway.settings import CanonSettings
from gateway.transport.incoming import Incoming
from gateway.transport.record import CanonTold
from gateway.wire.round_trip import round_trip_loss


class Canonical(msgspec.Struct, frozen=True):
    """A request as it goes on."""

    body: Mapping[str, Any]
    raw: bytes | None  # the bytes it came in; None: canon changed it, and writing `body` again loses nothing
    told: CanonTold
    recording: Recording | None = None


class CanonStage:
    """Canon with the gateway's settings and memory. Safe from any thread."""

    def __init__(
        self, settings: CanonSettings, before: "CanonStage | None" = None, memory: MemoryStore | None = None
    ) -> None:
        """`before`: a stage with other settings, whose memory this one goes on with.

        `memory`: where conversations are remembered; None: in this process.
        """
        self._policies = Policies(settings.policies, settings.rules_version)
        self._rules_version = settings.rules_version
        self._session_headers = settings.session_headers
        self._clean = CleanRequests()
        if before is None:
            store: MemoryStore = memory or LocalStore(settings.memory_bytes, ttl_s=settings.memory_ttl_s)
            self._gain = GainCounter()
        else:
            store, self._gain = before._memory.store, before._gain
        self._memory: ConversationMemory = ConversationMemory(
            store, all_recorded=True, slot_confirmations=settings.slot_confirmations
        )

    def forget(self, scope: str) -> int:
        """Drop what conversations of a scope left in the memory; how many records those were."""
        return self._memory.forget(scope)

    def policy(self, route: Route, model: str, incoming: Incoming) -> Policy:
        """The policy that counts.

        Raises:
            ApiError: 400, the client asks for one that does not exist; 403, its tenant may not ask.
        """
        wanted, tenant = incoming.header(HEADER), incoming.tenant
        if wanted is not None and not tenant.may_bypass:
            raise ApiError(403, _NO_BYPASS, type_="permission_error", param=HEADER, code="bypass_not_allowed")
        own = _own_policies(tenant.canon, self._rules_version) if tenant.canon else None
        try:
            return self._policies.of(route, model, wanted, own)
        except PolicyError as error:
            raise invalid(f"Invalid value for '{HEADER}': {error}.", HEADER, "invalid_value") from None

    @staticmethod
    def remembers(policy: Policy) -> bool:
        """Whether requests under this policy use the memory, which may be another server's."""
        return policy.name != "off" and policy.applies and policy.acts("conversation_memory")

    def apply(self, incoming: Incoming, policy: Policy, scope: str) -> Canonical:
        """The request as it goes on; takes as long as reading the whole body a few times."""
        if policy.name == "off":
            return Canonical(incoming.body, incoming.raw, CanonTold(policy.name))
        remembers = self.remembers(policy)
        # What cannot be sent as rewritten must not be remembered as sent.
        loss = round_trip_loss(incoming.raw, incoming.body) if remembers else None
        if loss is not None:
            return self._bypass(incoming, policy, loss)
        clean = None
        if policy.applies and not remembers:
            clean = self._clean.key(incoming.body, policy, scope)
            if clean is not None and (known := self._clean.get(clean)) is not None:
                return Canonical(incoming.body, incoming.raw, known)
        memory, session = self._memory if remembers else None, self.session(incoming)
        with self._memory.store.burst() if remembers else nullcontext():
            result = canonicalize(incoming.body, policy, memory, scope, session=session)
        if result.changed and not remembers:
            loss = round_trip_loss(incoming.raw, incoming.body)
            if loss is not None:
                return self._bypass(incoming, policy, loss)
        told = _told(policy, result)
        if clean is not None and not result.edits and not result.findings:
            self._clean.put(clean, told)
        if not policy.applies:
            told = replace(told, gain_tokens=self._would_gain(incoming, policy, scope))
        recording = Recording(memory, result.body, incoming.size, scope, session) if memory else None
        return Canonical(result.body, None if result.changed else incoming.raw, told, recording)

    def _would_gain(self, incoming: Incoming, policy: Policy, scope: str) -> int:
        rewritten = canonicalize(incoming.body, replace(policy, applies=True))
        return self._gain.count(scope, incoming.body, rewritten.body)

    def _bypass(self, incoming: Incoming, policy: Policy, loss: str) -> Canonical:
        told = replace(_told(policy, bypass(incoming.body, loss)), bypassed=True)
        return Canonical(incoming.body, incoming.raw, told)

    def session(self, incoming: Incoming) -> str:
        """What names the client's conversation; empty: nothing does."""
        for name in self._session_headers:
            if value := incoming.header(name):
                return f"{name}:{value}"
        return ""


_NO_BYPASS = f"Requests with this key may not choose another policy with '{HEADER}'."


@lru_cache(maxsize=1024)
def _own_policies(chosen: tuple[str, ...], rules_version: int) -> Policies:
    return Policies([parse_policy(text) for text in chosen], rules_version)


def _told(policy: Policy, result: CanonResult) -> CanonTold:
    return CanonTold(
        policy.name,
        policy.rules_version,
        applied=policy.applies,
        edits=dict(Counter(edit.rule for edit in result.edits)),
        findings=dict(Counter(finding.cause for finding in result.findings)),
    )
