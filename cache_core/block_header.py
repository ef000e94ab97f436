"""The header of every block outside the device, and the proof that a block on its way back is the one asked for.

Layout, little-endian: the fixed part (`_FIXED`), its CRC-32C with the token ids' (4 bytes), a keyed MAC (32
bytes, zeros where there is none), the token ids (int32 each; none where the body is encrypted, it holds them
then), zeros up to the alignment the file wants, then the body.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from crc32c import crc32c

from cache_core.drop_reason import DropReason
from cache_core.errors import CacheError
from cache_core.state_groups import StateGroup
from cache_core.tokens import TOKEN_BYTES

MAGIC = b"KVGBLOCK"
VERSION = 1
# magic, version, coding, header bytes, state group, token ids, item size, payload bytes, body bytes,
# identity, parent, own, nonce, body's CRC-32C
_FIXED = struct.Struct("<8sHHIIIIQQ32s32s32s12sI")
_CRC = struct.Struct("<I")
_MAC_BYTES = 32
_KEY = struct.Struct("<16s32sI")
KEY_BYTES = _KEY.size
KEY_IDENTITY_BYTES = 16  # a key begins with that much of its identity's digest
NO_NONCE = bytes(12)

Buffer = bytes | memoryview


class BadBlockError(CacheError):
    """A stored block is not what it should be. Tiers count it and answer a miss; it does not leave them."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Coding(IntEnum):
    """Bits that say what was done to a payload to get its body, in this order."""

    RAW = 0
    QUANTIZED = 1
    COMPRESSED = 2
    ENCRYPTED = 4
    SIGNED = 8  # the header holds a MAC


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """Which block: what the index asks for, and what the file must say."""

    identity: bytes  # digest [32] of the CacheIdentity
    parent: bytes  # chain hash [32] of the block before; the root hash for a first one
    own: bytes  # chain hash [32]
    tokens: bytes  # int32 ids, little-endian
    group: int = StateGroup.ATTENTION
    # What tiers file the block under: the beginning of the identity, the chain hash, the state group. Kept, as a
    # transfer asks for it half a dozen times.
    key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = _KEY.pack(self.identity[:KEY_IDENTITY_BYTES], self.own, self.group)
        object.__setattr__(self, "key", key)

    @property
    def parent_key(self) -> bytes:
        """What the block before is filed under; nothing where this is the first one."""
        return parent_key(self.key, self.parent)


@dataclass(frozen=True, slots=True)
class Body:
    """A payload as it is stored."""

    data: Buffer
    payload_bytes: int  # before any coding
    coding: int = Coding.RAW  # bits of Coding
    item_size: int = 1  # bytes of one element, for the codec
    nonce: bytes = NO_NONCE


@dataclass(frozen=True, slots=True)
class Envelope:
    """A header as it was read, its own checksum already proven."""

    header: BlockHeader  # without token ids where the body is encrypted
    coding: int  # bits of Coding
    header_bytes: int  # from the record's start to its body
    token_count: int
    item_size: int
    payload_bytes: int
    body_bytes: int
    nonce: bytes
    body_crc: int
    mac: bytes
    signed: bytes  # what the MAC covers besides the body

    @property
    def bound(self) -> bytes:
        """What a cipher binds the body to."""
        return bound(self.header)


def of_key(key: bytes) -> tuple[bytes, int]:
    """Chain hash and state group of the block that is filed under it."""
    _, own, group = _KEY.unpack(key)
    return own, group


def parent_key(key: bytes, parent: bytes) -> bytes:
    """What the block with that chain hash is filed under, which lies before the one with this key."""
    return key[:KEY_IDENTITY_BYTES] + parent + key[KEY_IDENTITY_BYTES + len(parent) :]


def bound(header: BlockHeader) -> bytes:
    """Identity, hashes and group in one piece: the associated data of an encrypted body."""
    return header.identity + header.parent + header.key


def header_size(tokens: int, alignment: int) -> int:
    """Bytes from a record's start to its body, for a header with that many token ids in it."""
    return -(-(_FIXED.size + _CRC.size + _MAC_BYTES + tokens * TOKEN_BYTES) // alignment) * alignment


def pack(header: BlockHeader, body: Body, alignment: int = 1, mac_key: bytes | None = None) -> bytes:
    """The bytes in front of a body: as long as `header_size` says."""
    tokens = b"" if body.coding & Coding.ENCRYPTED else header.tokens
    size = header_size(len(tokens) // TOKEN_BYTES, alignment)
    fixed = _FIXED.pack(
        MAGIC,
        VERSION,
        body.coding | (Coding.SIGNED if mac_key is not None else Coding.RAW),
        size,
        header.group,
        len(header.tokens) // TOKEN_BYTES,
        body.item_size,
        body.payload_bytes,
        len(body.data),
        header.identity,
        header.parent,
        header.own,
        body.nonce,
        crc32c(body.data),
    )
    covered = fixed + _CRC.pack(crc32c(tokens, crc32c(fixed)))
    mac = bytes(_MAC_BYTES) if mac_key is None else _mac(mac_key, fixed + tokens, body.data)
    return (covered + mac + tokens).ljust(size, b"\0")


def unpack(record: Buffer) -> Envelope:
    """Read the header at the start of `record`, which may end behind it.

    Raises:
        BadBlockError: FOREIGN, OLD_VERSION, TRUNCATED or CHECKSUM.
    """
    if len(record) < _FIXED.size + _CRC.size + _MAC_BYTES:
        raise BadBlockError(DropReason.TRUNCATED)
    fixed = bytes(record[: _FIXED.size])
    if fixed[: len(MAGIC)] != MAGIC:
        raise BadBlockError(DropReason.FOREIGN)
    _, version, coding, size, group, count, item, payload, body, *digests, nonce, crc = _FIXED.unpack(fixed)
    if version != VERSION:
        raise BadBlockError(DropReason.OLD_VERSION)
    at = _FIXED.size + _CRC.size + _MAC_BYTES
    encrypted = bool(coding & Coding.ENCRYPTED)
    tokens = b"" if encrypted else bytes(record[at : at + count * TOKEN_BYTES])
    (header_crc,) = _CRC.unpack(record[_FIXED.size : _FIXED.size + _CRC.size])
    if not encrypted and len(tokens) != count * TOKEN_BYTES:
        # a damaged count asks for more than there is, too
        raise BadBlockError(DropReason.TRUNCATED)
    if crc32c(tokens, crc32c(fixed)) != header_crc:
        raise BadBlockError(DropReason.CHECKSUM)
    identity, parent, own = digests
    return Envelope(
        header=BlockHeader(identity, parent, own, tokens, group),
        coding=coding,
        header_bytes=size,
        token_count=count,
        item_size=item,
        payload_bytes=payload,
        body_bytes=body,
        nonce=nonce,
        body_crc=crc,
        mac=bytes(record[at - _MAC_BYTES : at]),
        signed=fixed + tokens,
    )


def claimed_size(start: Buffer) -> int:
    """How long a header says it is, not proven yet; 0 where none of ours begins. For reading the whole of it."""
    if len(start) < _FIXED.size or start[: len(MAGIC)] != MAGIC:
        return 0
    return int(_FIXED.unpack(bytes(start[: _FIXED.size]))[3])


def verify(found: Envelope, body: Buffer, wanted: BlockHeader, mac_key: bytes | None = None) -> None:
    """Prove that `body` belongs to `found`, and `found` to the block that is wanted.

    Token ids inside an encrypted body are compared when it is decrypted.

    Raises:
        BadBlockError: says what is wrong.
    """
    verify_body(found, body)
    if found.header.identity != wanted.identity:
        raise BadBlockError(DropReason.WRONG_IDENTITY)
    if mac_key is not None:
        proof = _mac(mac_key, found.signed, body)
        if not (found.coding & Coding.SIGNED and hmac.compare_digest(proof, found.mac)):
            raise BadBlockError(DropReason.FORGED)
    is_it = found.header
    same = is_it.own == wanted.own and is_it.parent == wanted.parent and is_it.group == wanted.group
    if found.coding & Coding.ENCRYPTED:
        same = same and found.token_count == len(wanted.tokens) // TOKEN_BYTES
    else:
        same = same and is_it.tokens == wanted.tokens
    if not same:
        raise BadBlockError(DropReason.WRONG_BLOCK)


def verify_body(found: Envelope, body: Buffer) -> None:
    """Length and checksum alone: all that can be said without knowing what is wanted.

    Raises:
        BadBlockError: TRUNCATED or CHECKSUM.
    """
    if len(body) != found.body_bytes:
        raise BadBlockError(DropReason.TRUNCATED)
    if crc32c(body) != found.body_crc:
        raise BadBlockError(DropReason.CHECKSUM)


def _mac(key: bytes, signed: bytes, body: Buffer) -> bytes:
    mac = hmac.new(key, signed, hashlib.sha256)
    mac.update(body)
    return mac.digest()
