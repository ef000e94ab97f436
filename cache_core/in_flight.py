"""Which prefixes live leases are about to compute, so that nobody computes one twice."""

from dataclasses import dataclass

from cache_core.lease import Lease
from cache_core.tokens import Tokens, common_prefix


@dataclass(frozen=True, slots=True)
class InFlight:
    """`owner` will make the first `shared` tokens (whole blocks) of the prefix asked about ready."""

    owner: Lease
    shared: int

    @property
    def pending(self) -> bool:
        """Whether waiting still pays: the owner goes on and has not made all of `shared` ready yet."""
        return self.owner.live and self.owner.announced and self.owner.ready < self.shared


class InFlightTable:
    """The announced prompts of live leases, by scope and first block. Not locked."""

    def __init__(self, block_size: int) -> None:
        self._block = block_size
        self._owners: dict[tuple[str, bytes], dict[Lease, None]] = {}

    def announce(self, lease: Lease) -> bool:
        """`lease` is going to compute its wanted prompt; False where no whole block of that is left."""
        if lease.wanted_length - lease.ready < self._block:
            return False
        lease.in_flight = key = lease.scope, lease.covered_tokens(0, 1).tobytes()
        owners = self._owners.get(key)
        if owners is None:
            self._owners[key] = {lease: None}
        else:
            owners[lease] = None
        return True

    def may_share(self, tokens: Tokens, scope: str) -> bool:
        """Whether any announced prompt begins with the same block."""
        return self._key(scope, tokens) in self._owners

    def withdraw(self, lease: Lease) -> None:
        """`lease` has computed its prompt, or never will."""
        owners = self._owners.get(lease.in_flight)
        if owners is not None:
            owners.pop(lease, None)
            if not owners:
                del self._owners[lease.in_flight]

    def withdraw_scope(self, scope: str) -> None:
        """What leases of a purged scope compute is for themselves alone."""
        for key in [key for key in self._owners if key[0] == scope]:
            for lease in self._owners.pop(key):
                lease.announced = False

    def best(
        self, tokens: Tokens, scope: str, ready: int, limit: int, exclude: Lease | None
    ) -> InFlight | None:
        """The owner that will provide most of `tokens[:limit]` beyond the `ready` tokens that are indexed."""
        if ready + self._block > limit:
            return None
        found: InFlight | None = None
        following = tokens[ready : ready + self._block].tobytes()
        for owner in self._owners.get(self._key(scope, tokens), ()):
            wanted = owner.wanted
            if owner is exclude or wanted[ready : ready + self._block].tobytes() != following:
                continue
            shared = common_prefix(wanted, tokens[:limit]) // self._block * self._block
            if shared > (found.shared if found else ready):
                found = InFlight(owner, shared)
        return found

    def _key(self, scope: str, tokens: Tokens) -> tuple[str, bytes]:
        return scope, tokens[: self._block].tobytes()
