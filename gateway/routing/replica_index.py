"""Which replicas hold which prefixes, as far as this gateway knows: the shadow of their caches."""

from collections import Counter
from collections.abc import Container, Sequence
from itertools import accumulate, repeat
from operator import and_

import msgspec

from gateway.routing.chain import BLOCK, CHUNK, Key, PromptChain
from gateway.routing.held import Held

_FINE = 2  # depths at which blocks are looked up; others are told by the chunk


class Sending(msgspec.Struct):
    """One prompt on its way to one replica, for what its end tells."""

    number: int
    replica: str
    chain: PromptChain
    matched: int  # tokens that were believed to be there
    shared: Key | None = None  # the last chunk that anybody had
    uses: list[int] = []  # of each matched chunk: the last use before this one
    new: list[Key] = []  # keys that nobody had sent there


class ReplicaIndex:
    """Prefixes of all replicas of one engine. One thread at a time.

    Holders are bits of an int, so one look at a chunk tells all replicas. Within `max_keys`, over all replicas
    together: the replica with the most gives up its oldest. One key takes some 250 bytes.
    """

    def __init__(self, max_keys: int = 400_000, capacity: int | None = None) -> None:
        self._max = max_keys
        self._capacity = capacity
        self._holders: dict[Key, int] = {}
        self._places: dict[str, int] = {}  # of a replica's bit
        self._held: dict[str, Held] = {}
        self._keys = 0
        self._number = 0
        self._trusted: set[str] = set()
        self._running: set[int] = set()
        self._wanted: Counter[Key] = (
            Counter()
        )  # running requests by the last chunk that others had sent before

    def __len__(self) -> int:
        """Keys over all replicas."""
        return self._keys

    def tokens(self, replica: str) -> int:
        """That it is believed to hold."""
        held = self._held.get(replica)
        return 0 if held is None else held.tokens

    def matched(self, prompt: PromptChain, replicas: Sequence[str]) -> list[int]:
        """Tokens of `prompt` that each of `replicas` should hold, counted from its beginning."""
        bits = [self._bit(replica) for replica in replicas]
        found = {0: 0}
        for mask, tokens in self._groups(prompt, sum(set(bits))):
            while mask:
                bit = mask & -mask
                found[bit] = tokens
                mask ^= bit
        return [found[bit] for bit in bits]

    def heat(self, prompt: PromptChain, tokens: int) -> int:
        """Running requests that share the first `tokens` of `prompt` with what was sent before, and no more."""
        depth = tokens // CHUNK
        return self._wanted[prompt.keys[depth - 1]] if 0 < depth <= len(prompt.keys) else 0

    def send(self, replica: str, prompt: PromptChain, matched: int, anywhere: int) -> Sending:
        """`replica` gets `prompt`, and will hold it. It holds `matched` tokens of it; `anywhere`: the most of any."""
        held = self._held_by(replica)
        self._number = number = self._number + 1
        whole = min(matched // CHUNK, len(prompt.keys))
        while whole and held.last_used(prompt.keys[whole - 1]) is None:
            whole -= 1  # all its blocks are held, and the chunk as such is not
        shared = prompt.keys[anywhere // CHUNK - 1] if anywhere >= CHUNK else None
        uses, new = self._use(replica, prompt, whole, number)
        self._running.add(number)
        if shared is not None:
            self._wanted[shared] += 1
        self._make_room(replica, held)
        return Sending(number, replica, prompt, matched, shared, uses, new)

    def ended(self, sent: Sending, reused: int | None) -> None:
        """What the answer said of it, in tokens of the prompt as it was hashed. None: nothing."""
        self._ends(sent)
        held = self._held.get(sent.replica)
        if held is None or reused is None:
            return
        missing = reused // CHUNK  # the first chunk that was not there
        if missing >= len(sent.uses):
            held.kept(sent.chain.tokens - sent.matched)
        elif sent.uses[missing] not in self._running:  # else it was not there yet, which tells nothing
            self._gone(sent.replica, held.lost_until(sent.uses[missing]))

    def withdraw(self, sent: Sending) -> None:
        """It never got as far as its first token: what was new in it is not there."""
        self._ends(sent)
        held = self._held.get(sent.replica)
        if held is not None:
            self._gone(sent.replica, held.drop_used_by(sent.number, sent.new))

    def settle(self, sent: Sending, told: Container[Key]) -> None:
        """What was in it and is not among `told` is not there, unless it was sent once more since."""
        held = self._held.get(sent.replica)
        if held is not None:
            prompt, whole = sent.chain, len(sent.uses)
            keys = [*prompt.keys, *prompt.blocks(len(prompt.keys))]
            keys += prompt.blocks(whole) if whole < len(prompt.keys) else ()
            guessed = [key for key in keys if key not in told]
            self._gone(sent.replica, held.drop_used_by(sent.number, guessed))

    def trust(self, replica: str, told: bool) -> None:
        """`told`: the replica itself says what it has lost, so that its capacity is of no weight."""
        (self._trusted.add if told else self._trusted.discard)(replica)

    def stored(self, replica: str, keys: Sequence[Key], weight: int = CHUNK) -> None:
        """`replica` says that it holds these, a parent before its children."""
        held = self._held_by(replica)
        self._number += 1
        self._came(replica, held.used(reversed(keys), self._number, weight))
        self._make_room(replica, held)

    def removed(self, replica: str, keys: Sequence[Key]) -> None:
        """`replica` says that it holds these no more."""
        held = self._held.get(replica)
        if held is not None:
            self._gone(replica, held.drop(keys))

    def cleared(self, replica: str) -> None:
        """`replica` holds nothing: it was flushed, restarted, or has gone."""
        held = self._held.pop(replica, None)
        if held is not None:
            self._gone(replica, held.clear())
            del self._places[replica]

    def check(self) -> None:
        """Raises AssertionError where what is known of keys and of replicas does not agree."""
        holders: dict[Key, int] = {}
        for replica, held in self._held.items():
            held.check()
            for key in held:
                holders[key] = holders.get(key, 0) | self._bit(replica)
        assert holders == self._holders
        assert self._keys == sum(len(held) for held in self._held.values())
        assert len(set(self._places.values())) == len(self._held)
        assert sum(self._wanted.values()) <= len(self._running)

    def _ends(self, sent: Sending) -> None:
        self._running.discard(sent.number)
        if sent.shared is not None:
            self._wanted[sent.shared] -= 1
            if not self._wanted[sent.shared]:
                del self._wanted[sent.shared]

    def clear(self) -> None:
        """Nobody holds anything, as far as is known."""
        self._holders.clear()
        self._places.clear()
        self._held.clear()
        self._keys = 0

    def _groups(self, prompt: PromptChain, alive: int) -> list[tuple[int, int]]:
        """Masks of replicas that hold equally much, with how many tokens; the deepest first."""
        depths = self._parting(prompt.keys, alive)
        depths.reverse()
        found: list[tuple[int, int]] = []
        for mask, depth in depths[:_FINE]:
            found += self._in_blocks(prompt, mask, depth)
        if len(depths) > _FINE:
            found += [(mask, depth * CHUNK) for mask, depth in depths[_FINE:]]
        return found

    def _in_blocks(self, prompt: PromptChain, alive: int, chunk: int) -> list[tuple[int, int]]:
        parting = self._parting(prompt.blocks(chunk), alive)
        return [(mask, chunk * CHUNK + depth * BLOCK) for mask, depth in parting]

    def _parting(self, keys: Sequence[Key], alive: int) -> list[tuple[int, int]]:
        """Masks of replicas of `alive` that hold equally many of `keys`, from the first on, with how many; rising."""
        found, holders = [], map(self._holders.get, keys, repeat(0))
        for depth, still in enumerate(accumulate(holders, and_, initial=alive)):
            if still != alive:
                found.append((alive ^ still, depth - 1))
                alive = still
                if not still:
                    return found
        return [*found, (alive, len(keys))] if alive else found

    def _use(self, replica: str, prompt: PromptChain, whole: int, number: int) -> tuple[list[int], list[Key]]:
        """The end first. Blocks stand for what fills no chunk, and for where other prompts may leave this one."""
        held, keys = self._held_by(replica), prompt.keys
        new = held.used(reversed(prompt.blocks(len(keys))), number, BLOCK)
        if whole < len(keys):
            new += held.used(reversed(keys[whole:]), number, CHUNK)
            new += held.used(reversed(prompt.blocks(whole)), number, 0)
        uses = held.touched(keys[:whole], number, CHUNK) if whole else []
        if new:
            self._came(replica, new)
        return uses, new

    def _came(self, replica: str, keys: Sequence[Key]) -> None:
        bit, holders = self._bit(replica), self._holders
        for key in keys:
            holders[key] = holders.get(key, 0) | bit
        self._keys += len(keys)

    def _gone(self, replica: str, keys: Sequence[Key]) -> None:
        bit, holders = self._bit(replica), self._holders
        for key in keys:
            left = holders[key] & ~bit
            if left:
                holders[key] = left
            else:
                del holders[key]
        self._keys -= len(keys)

    def _make_room(self, replica: str, held: Held) -> None:
        if replica not in self._trusted:
            self._gone(replica, held.over())
        while self._keys > self._max:
            most = max(self._held, key=lambda each: len(self._held[each]))
            self._gone(most, self._held[most].oldest(max(1, self._keys - self._max)))

    def _held_by(self, replica: str) -> Held:
        held = self._held.get(replica)
        if held is None:
            taken = set(self._places.values())
            self._places[replica] = next(place for place in range(len(taken) + 1) if place not in taken)
            held = self._held[replica] = Held(self._capacity)
        return held

    def _bit(self, replica: str) -> int:
        """0: it holds nothing."""
        place = self._places.get(replica)
        return 0 if place is None else 1 << place
