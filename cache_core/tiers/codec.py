"""How a payload becomes the body that is stored, and back: 8-bit values, compression, encryption."""

import os
from dataclasses import dataclass

import numpy as np
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cache_core.block_header import (
    NO_NONCE,
    BadBlockError,
    BlockHeader,
    Body,
    Buffer,
    Coding,
    Envelope,
    bound,
)
from cache_core.drop_reason import DropReason
from cache_core.state_groups import StateGroup
from cache_core.tiers.quantize import Quantization, dequantized
from cache_core.tokens import TOKEN_BYTES

_WORTH_IT = 0.95  # a body that is not smaller than this share of its payload stays as it is


@dataclass(frozen=True, slots=True)
class Codec:
    """What a tier does to payloads; it reads whatever any codec with the same key wrote."""

    compression: int | None = None  # zstd level; None: off
    item_size: int = 2  # bytes of one element: bytes of equal rank compress better side by side
    quantization: Quantization | None = None  # None: every bit comes back
    key: bytes | None = None  # AES-GCM, 16, 24 or 32 bytes; None: nothing is encrypted

    @property
    def plain(self) -> bool:
        """A body is its payload."""
        return self.compression is None and self.key is None and self.quantization is None

    def encode(self, header: BlockHeader, payload: memoryview) -> Body:
        """The body of one block. Without any coding it is the payload itself, not a copy."""
        data: Buffer = payload
        coding: int = Coding.RAW
        nonce, item_size = NO_NONCE, self.item_size
        small = self._small(header, payload)
        if small is not None:
            data, coding, item_size = small, Coding.QUANTIZED, 1
        if self.compression is not None:
            packed = zstandard.ZstdCompressor(level=self.compression).compress(_shuffled(data, item_size))
            if len(packed) < len(data) * _WORTH_IT:
                data, coding = packed, coding | Coding.COMPRESSED
        if self.key is not None:
            nonce = os.urandom(len(NO_NONCE))
            data = AESGCM(self.key).encrypt(nonce, header.tokens + data, bound(header))
            coding |= Coding.ENCRYPTED
        return Body(data, len(payload), coding, item_size, nonce)

    def _small(self, header: BlockHeader, payload: memoryview) -> bytes | None:
        # Other groups' states are of other types, and of a kind that adds up its errors over a whole answer.
        wanted = self.quantization is not None and header.group == StateGroup.ATTENTION
        return self.quantization.encode(payload) if wanted and self.quantization is not None else None

    def outcome(self, header: BlockHeader, body: Body) -> str | None:
        """By its name in TierStats, what became of a block that was to be quantized; None: it was not to be."""
        if self.quantization is None or header.group != StateGroup.ATTENTION:
            return None
        return "quantized" if body.coding & Coding.QUANTIZED else "kept_exact"

    def decode(self, found: Envelope, body: Buffer, wanted: BlockHeader, out: memoryview) -> None:
        """Write the payload of a verified body to `out`.

        Raises:
            BadBlockError: UNDECODABLE (another key's, or not what it says), WRONG_BLOCK, WRONG_SIZE.
        """
        data = memoryview(self._decrypted(found, body, wanted))
        if found.payload_bytes != len(out):
            raise BadBlockError(DropReason.WRONG_SIZE)
        if found.coding & Coding.QUANTIZED:
            _dequantize(data, found, out)
        elif found.coding & Coding.COMPRESSED:
            _decompress(data, found.item_size, out)
        elif len(data) != len(out):
            raise BadBlockError(DropReason.WRONG_SIZE)
        else:
            out[:] = data

    def _decrypted(self, found: Envelope, body: Buffer, wanted: BlockHeader) -> Buffer:
        if not found.coding & Coding.ENCRYPTED:
            return body
        if self.key is None:
            raise BadBlockError(DropReason.UNDECODABLE)
        try:
            plain = AESGCM(self.key).decrypt(found.nonce, body, found.bound)
        except InvalidTag:
            raise BadBlockError(DropReason.UNDECODABLE) from None
        tokens = found.token_count * TOKEN_BYTES
        if plain[:tokens] != wanted.tokens:
            raise BadBlockError(DropReason.WRONG_BLOCK)
        return memoryview(plain)[tokens:]


def _shuffled(payload: Buffer, item_size: int) -> Buffer:
    """All first bytes of the elements, then all second ones; a length that does not divide stays as it is."""
    if item_size < 2 or not payload or len(payload) % item_size:
        return payload
    items = np.frombuffer(payload, dtype=np.uint8).reshape(-1, item_size)
    return np.ascontiguousarray(items.T).data.cast("B")


def _dequantize(data: memoryview, found: Envelope, out: memoryview) -> None:
    if found.coding & Coding.COMPRESSED:
        try:
            data = memoryview(
                zstandard.ZstdDecompressor().decompress(data, max_output_size=2 * len(out) + 64)
            )
        except zstandard.ZstdError:
            raise BadBlockError(DropReason.UNDECODABLE) from None
    plain = dequantized(data)
    if len(plain) != len(out):
        raise BadBlockError(DropReason.WRONG_SIZE)
    out[:] = plain


def _decompress(data: memoryview, item_size: int, out: memoryview) -> None:
    try:
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=len(out))
    except zstandard.ZstdError:
        raise BadBlockError(DropReason.UNDECODABLE) from None
    if len(plain) != len(out):
        raise BadBlockError(DropReason.WRONG_SIZE)
    target = np.frombuffer(out, dtype=np.uint8)
    source = np.frombuffer(plain, dtype=np.uint8)
    if item_size < 2 or len(plain) % item_size:
        target[:] = source
    else:
        target.reshape(-1, item_size)[:] = source.reshape(item_size, -1).T
