"""Two tenants that share nothing, and a third one of the first one's group."""

from collections.abc import Sequence

from gateway.tenants.keyed import Keyed
from gateway.tenants.keys import KeyHash, KeyRing, KeySource, digest_of, find, hash_of
from gateway.tenants.salts import mark_of, salt_of
from gateway.tenants.tenant import Tenant

SECRET = b"a secret of some thirty-two bytes"
ALICE, BOB, CARL = "kvg_alice_0123456789abcdef", "kvg_bob_0123456789abcdefgh", "kvg_carl_0123456789abcdefg"


def tenant(name: str, group: str | None = None, **more: object) -> Tenant:
    group = group or name
    return Tenant(name, group, salt=salt_of(SECRET, group), mark=mark_of(SECRET, group), **more)


def keyed(*tenants: Tenant, **keys: str) -> Keyed:
    """`keys`: tenant's name -> its key."""
    ring = KeyRing(KeyHash(name, digest_of(hash_of(key))) for name, key in keys.items())
    return Keyed(tenants, [ring])


def three(**more: object) -> Keyed:
    """`more`: for Bob alone."""
    people = tenant("alice", "ac"), tenant("bob", **more), tenant("carl", "ac")
    return keyed(*people, alice=ALICE, bob=BOB, carl=CARL)


def whose(sources: Sequence[KeySource], key: bytes) -> str | None:
    """The tenant that has `key`."""
    found = find(sources, key)
    return None if found is None else found.tenant
