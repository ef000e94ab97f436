"""The cache identity: everything that makes KV bytes interchangeable, as one digest."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

DIGEST_BYTES = 32
_VERSION = "kvgate cache identity 1"

Value: TypeAlias = "bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None"


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer's share of a block. Dims are elements of one head; a layer without KV has no heads."""

    kv_heads: int  # on this rank
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, eq=False)
class CacheIdentity:
    """Two caches may share blocks exactly where their digests are equal.

    Sizes of the run (context length, batch size, blocks in the pool) stay out: they do not change KV bytes,
    and would only cost hits. Media stay out as well: their hashes enter the chain hash from their offset on.
    """

    weights_digest: bytes
    update_epoch: bytes  # see UpdateEpoch
    tokenizer_digest: bytes
    template_digest: bytes
    weight_dtype: str
    kv_dtype: str
    layers: Sequence[LayerShape]
    position: Mapping[str, Value]  # the position config as the model states it, RoPE scaling included
    block_size: int  # tokens
    state_format: str  # what the bytes of a block mean: order of layers, auxiliary state, version
    parallel_rank: int = 0
    parallel_size: int = 1
    lora_digest: bytes | None = None
    salt: bytes = b""  # the server's own, one a tenant; never a client's
    digest: bytes = field(init=False)  # SHA-256

    def __post_init__(self) -> None:
        layers = [(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in self.layers]
        fields: dict[str, Value] = {
            "block size": self.block_size,
            "kv dtype": self.kv_dtype,
            "layers": layers,
            "lora": self.lora_digest,
            "parallel rank": self.parallel_rank,
            "parallel size": self.parallel_size,
            "position": self.position,
            "salt": self.salt,
            "state format": self.state_format,
            "template": self.template_digest,
            "tokenizer": self.tokenizer_digest,
            "update epoch": self.update_epoch,
            "weight dtype": self.weight_dtype,
            "weights": self.weights_digest,
        }
        object.__setattr__(self, "digest", digest_of(_VERSION, fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CacheIdentity) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def digest_of(purpose: str, value: Value) -> bytes:
    """SHA-256 of a value for one purpose; equal exactly where purpose and value are, types included."""
    return hashlib.sha256(encoded(purpose) + encoded(value)).digest()


def encoded(value: Value) -> bytes:
    """A type tag, the length, the content: no two values have the same bytes, nor one's as a beginning.

    Raises:
        TypeError: a type that has no tag.
    """
    match value:
        case None:
            return _tagged(b"n", b"")
        case bool():
            return _tagged(b"t", b"\1" if value else b"\0")
        case int():
            return _tagged(b"i", str(value).encode())
        case float():
            return _tagged(b"f", struct.pack("<d", value))
        case str():
            return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _tagged(b"b", value)
        case Mapping():
            pairs = sorted((encoded(key), encoded(item)) for key, item in value.items())
            return _tagged(b"m", b"".join(key + item for key, item in pairs))
        case Sequence():
            return _tagged(b"l", b"".join(encoded(item) for item in value))
        case _:
            raise TypeError(f"a {type(value).__name__} has no place in an identity")


def _tagged(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack("<Q", len(content)) + content
