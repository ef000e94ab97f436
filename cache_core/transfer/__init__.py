"""Moves of blocks between tiers: asynchronous, by priority, within a bandwidth, and never after a cancel."""

from cache_core.transfer.clock import Clock, SystemClock
from cache_core.transfer.engine import TransferEngine, Way
from cache_core.transfer.job import Job, Leavable, Pending, Piece
from cache_core.transfer.link import Link, LinkConfig
from cache_core.transfer.token_bucket import TokenBucket
from cache_core.transfer.transfer import Priority, Transfer, TransferRefusedError

__all__ = [
    "Clock",
    "Job",
    "Leavable",
    "Link",
    "LinkConfig",
    "Pending",
    "Piece",
    "Priority",
    "SystemClock",
    "TokenBucket",
    "Transfer",
    "TransferEngine",
    "TransferRefusedError",
    "Way",
]
