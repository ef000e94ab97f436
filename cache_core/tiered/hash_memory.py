"""Chain hashes of prompts that were seen lately, so that a growing conversation hashes only what is new."""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from cache_core.tokens import Tokens, common_prefix

_MOST_BLOCKS = 1 << 17  # over all prompts: about 20 MB
_MOST_PROMPTS = 256  # of which those with the same first block are compared


@dataclass(frozen=True, slots=True)
class _Prompt:
    key: bytes  # root and first block
    tokens: Tokens  # whole blocks
    hashes: list[bytes]


class HashMemory:
    """The newest prompts of each root with their hashes, within a bound. From any thread."""

    def __init__(
        self, block_size: int, most_blocks: int = _MOST_BLOCKS, most_prompts: int = _MOST_PROMPTS
    ) -> None:
        self._block = block_size
        self._most_blocks = most_blocks
        self._most_prompts = most_prompts
        self._prompts: OrderedDict[int, _Prompt] = OrderedDict()  # newest last
        self._alike: dict[bytes, set[int]] = {}  # by their key
        self._blocks = 0
        self._number = 0
        self._lock = Lock()

    def known(self, root: bytes, tokens: Tokens) -> list[bytes]:
        """Hashes of the leading blocks of `tokens` that are remembered; a list of the caller's own."""
        with self._lock:
            number, blocks = self._nearest(root, tokens)
            if number is None:
                return []
            self._prompts.move_to_end(number)
            return self._prompts[number].hashes[:blocks]

    def remember(self, root: bytes, tokens: Tokens, hashes: list[bytes]) -> None:
        """These are the hashes of the first blocks of `tokens`. Takes the place of a prompt it goes on from."""
        tokens = tokens[: len(hashes) * self._block]
        if not hashes or len(hashes) > self._most_blocks:
            return
        with self._lock:
            number, blocks = self._nearest(root, tokens)
            if blocks == len(hashes):
                return
            if number is not None and blocks == len(self._prompts[number].hashes):
                self._forget(number)
            self._number += 1
            key = self._key(root, tokens)
            self._prompts[self._number] = _Prompt(key, tokens.copy(), list(hashes))
            self._alike.setdefault(key, set()).add(self._number)
            self._blocks += len(hashes)
            while self._blocks > self._most_blocks or len(self._prompts) > self._most_prompts:
                self._forget(next(iter(self._prompts)))

    def forget(self, root: bytes) -> None:
        """Nothing of this root is remembered any more."""
        with self._lock:
            for number in [number for number, prompt in self._prompts.items() if prompt.key.startswith(root)]:
                self._forget(number)

    def _nearest(self, root: bytes, tokens: Tokens) -> tuple[int | None, int]:
        """The prompt that has most leading blocks in common with `tokens`, and how many."""
        best: int | None = None
        most = 0
        for number in self._alike.get(self._key(root, tokens), ()):
            shared = common_prefix(self._prompts[number].tokens, tokens) // self._block
            if shared > most:
                best, most = number, shared
        return best, most

    def _forget(self, number: int) -> None:
        prompt = self._prompts.pop(number)
        self._blocks -= len(prompt.hashes)
        alike = self._alike[prompt.key]
        alike.remove(number)
        if not alike:
            del self._alike[prompt.key]

    def _key(self, root: bytes, tokens: Tokens) -> bytes:
        return root + tokens[: self._block].tobytes()
