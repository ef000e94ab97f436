"""Why tiers drop blocks. Apart from the header, which needs a checksum that only `kvgate[tiers]` brings."""

from enum import Enum


class DropReason(Enum):
    """Why a block was not stored, or not served."""

    MISSING = "missing"  # the index knew it, its file did not
    TRUNCATED = "truncated"
    FOREIGN = "foreign"  # no block of ours begins there
    OLD_VERSION = "old_version"
    CHECKSUM = "checksum"
    FORGED = "forged"  # the MAC is absent or another key's
    WRONG_IDENTITY = "wrong_identity"
    WRONG_BLOCK = "wrong_block"  # whole, but another one: hashes, state group or token ids differ
    WRONG_SIZE = "wrong_size"  # whole, but not as long as asked for
    UNDECODABLE = "undecodable"  # the codec or the cipher refused it
    PERMISSION = "permission"
    IO_ERROR = "io_error"
    SLOW = "slow"  # its deadline passed
    AWAY = "away"  # its tier hangs, and was not asked
    PURGED = "purged"  # its identity was purged while it was read
    DISK_FULL = "disk_full"
    NO_ROOM = "no_room"  # everything in the tier is in use, or the tier is off
    TOO_LARGE = "too_large"  # more than the tier may hold
    INDEX_ERROR = "index_error"
