"""The conversation memory that several gateways share, in Redis."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from canon.memory import LocalStore, MemoryStore
from gateway.canonical.read_ahead import ReadAhead
from gateway.canonical.seal import Seal
from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.scripts import Script
from gateway.shared_state.shared_state import SharedState

log = logging.getLogger("kvgate.gateway")

# ARGV: whether a record is expected, which one, whether one is to be there then, which one, milliseconds it lives.
_COMPARE_AND_PUT = Script("""
local there = redis.call('GET', KEYS[1])
local expected = ARGV[1] == '1' and ARGV[2] or false
if there ~= expected then
  return 0
end
if ARGV[3] == '1' then
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
else
  redis.call('DEL', KEYS[1])
end
return 1
""")

# ARGV: milliseconds that each lives from now on.
_GET_ALL = Script("""
local found = redis.call('MGET', unpack(KEYS))
for place, key in ipairs(KEYS) do
  if found[place] then
    redis.call('PEXPIRE', key, ARGV[1])
  end
end
return found
""")


class SharedMemoryStore(MemoryStore):
    """Records of all gateways; each lives for `ttl_s` after its last use. The server bounds how many there are.

    While the server is away, `local` has what is new. It is handed over when the server is back, where nobody else has
    set the record meanwhile; until then it is found there, too.
    """

    def __init__(
        self,
        state: SharedState,
        local: LocalStore,
        *,
        ttl_s: float,
        max_record_bytes: int = 1 << 20,
        seal: Seal | None = None,
    ) -> None:
        self._calls = state.threaded
        self._local = local
        self._prefix = state.options.key("memory", "").encode()
        self._ttl_ms = max(1, int(ttl_s * 1000))
        self._max_record_bytes = max_record_bytes
        self._seal = seal
        self._refused = ""  # what the server said last
        self._unreadable = False
        self._ahead = ReadAhead(self._fetch)
        state.circuit.on_return(self._hand_over)

    def get(self, key: bytes) -> bytes | None:
        try:
            stored = self._ahead.get(key)
        except SharedStateError as error:
            self._say(error)
            return self._local.get(key)
        value = None if stored is None else self._opened(key, stored)
        # What was kept while the server was away may not be there yet.
        return self._local.get(key) if value is None and len(self._local) else value

    def burst(self) -> AbstractContextManager[None]:
        """As `MemoryStore` says: one round trip brings most of what the turn before has read."""
        return self._ahead.burst()

    def put(self, key: bytes, value: bytes) -> None:
        self._ahead.written(key)
        try:
            if len(value) > self._max_record_bytes:
                self._calls.execute("DEL", self._name(key))
            else:
                self._calls.execute("SET", self._name(key), self._closed(key, value), "PX", self._ttl_ms)
        except SharedStateError as error:
            self._say(error)
            self._local.put(key, value)

    def compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        self._ahead.written(key)
        try:
            if expected is not None and len(self._local) and self._local.get(key) == expected:
                done = self._compare_and_put(key, None, value)  # so far it was known here only
                self._local.forget(key)
                return done
            return self._compare_and_put(key, expected, value)
        except SharedStateError as error:
            self._say(error)
            return self._local.compare_and_put(key, expected, value)

    def forget(self, prefix: bytes) -> int:
        """As `MemoryStore` says, of all gateways.

        Raises:
            SharedStateError: the server is away: what it has is still there.
        """
        forgotten = self._local.forget(prefix)
        for keys in self._calls.keys(_pattern(self._name(prefix))):
            forgotten += int(self._calls.execute("UNLINK", *keys))
        return forgotten

    def _fetch(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        if len(keys) == 1:
            return [self._calls.execute("GETEX", self._name(keys[0]), "PX", self._ttl_ms)]
        found: Sequence[bytes | None] = self._calls.run(
            _GET_ALL, [self._name(key) for key in keys], [self._ttl_ms]
        )
        return found

    def _compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        fits = len(value) <= self._max_record_bytes
        args: list[bytes | int] = [
            0 if expected is None else 1,
            b"" if expected is None else self._closed(key, expected),
            1 if fits else 0,
            self._closed(key, value) if fits else b"",
            self._ttl_ms,
        ]
        return bool(self._calls.run(_COMPARE_AND_PUT, [self._name(key)], args))

    def _hand_over(self) -> None:
        """What was kept while the server was away goes there."""
        for key, value in self._local.items():
            try:
                self._compare_and_put(key, None, value)
            except SharedStateError as error:
                self._say(error)
                return  # it stays here, and is found here
            self._local.forget(key)

    def _name(self, key: bytes) -> bytes:
        return self._prefix + key.hex().encode()

    def _closed(self, key: bytes, value: bytes) -> bytes:
        return value if self._seal is None else self._seal.close(key, value)

    def _opened(self, key: bytes, stored: bytes) -> bytes | None:
        if self._seal is None:
            return stored
        value = self._seal.open(key, stored)
        if value is None:
            if not self._unreadable:
                self._unreadable = True
                log.warning(
                    "records of the shared memory are of another secret: they are dropped when they are met"
                )
            self._calls.execute("DEL", self._name(key))
        return value

    def _say(self, error: SharedStateError) -> None:
        if isinstance(error, AwayError) or str(error) == self._refused:
            return  # the former is said by who found it out
        self._refused = str(error)
        fields = {"error": str(error)[:300]}
        log.error("the shared memory refuses records: this gateway keeps its own", extra={"fields": fields})


def _pattern(prefix: bytes) -> bytes:
    """Keys that begin so; a configured prefix has none of the characters that mean something here."""
    return prefix + b"*"
