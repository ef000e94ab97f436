"""A Mooncake client without a network, with the answers the real one gave when it was asked."""

import ctypes
import re
from dataclasses import dataclass, field


@dataclass
class Objects:
    """What all clients of one store see."""

    held: dict[str, bytes] = field(default_factory=dict)
    room: int = 1 << 30  # bytes
    code: int = 0  # what every call answers, if it is not 0


class MemoryClient:
    """See `cache_core.tiers.store_mooncake.MooncakeClient`."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        return [self.objects.code or int(key in self.objects.held) for key in keys]

    def batch_put_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        return [self._put(*one) for one in zip(keys, buffer_ptrs, sizes, strict=True)]

    def _put(self, key: str, address: int, size: int) -> int:
        if self.objects.code:
            return self.objects.code
        if key in self.objects.held:
            return 0  # nothing is written, and nothing said
        if sum(map(len, self.objects.held.values())) + size > self.objects.room:
            return -200
        self.objects.held[key] = ctypes.string_at(address, size)
        return 0

    def batch_get_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        return [self._get(*one) for one in zip(keys, buffer_ptrs, sizes, strict=True)]

    def _get(self, key: str, address: int, size: int) -> int:
        found = self.objects.held.get(key)
        if self.objects.code or found is None:
            return self.objects.code or -704
        if len(found) > size:
            return -600
        ctypes.memmove(address, found, len(found))
        return len(found)

    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        assert force, "what was just used cannot be removed without"
        if self.objects.code:
            return [self.objects.code] * len(keys)
        return [0 if self.objects.held.pop(key, None) is not None else -704 for key in keys]

    def remove_by_regex(self, regex_pattern: str, force: bool) -> int:
        assert force, "what was just used cannot be removed without"
        gone = [key for key in self.objects.held if re.search(regex_pattern, key)]
        if self.objects.code:
            return self.objects.code
        for key in gone:
            del self.objects.held[key]
        return len(gone)

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        return 0

    def unregister_buffer(self, buffer_ptr: int) -> int:
        return 0

    def close(self) -> int:
        return 0
