"""What the embedded engine is told at start."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine_adapters.base import Tier
from engine_adapters.embedded.cold_config import ColdCoding, Marks, SharedStore
from engine_adapters.embedded.models import cache_dir as default_cache_dir

if TYPE_CHECKING:  # it brings torch, and the command line needs this module before it is worth the seconds
    from cache_core.tiered import WritePolicy


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """How much the engine takes on at once."""

    max_running: int = 64  # sequences in the batch
    max_waiting: int = 512  # sequences in the queue; more are refused as overloaded
    prefill_budget: int = 1024  # prompt tokens a step when nothing decodes
    prefill_budget_decoding: int = 256  # the same while sequences decode, so that they keep their pace


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """Model, device and sizes of one embedded engine."""

    model: str | None = None  # a Hugging Face name, a local folder, or None: the default model
    served_name: str | None = None  # None: the model's own name
    device: str = "auto"  # auto, cpu, cuda, cuda:1, ...
    dtype: str = "auto"
    kv_bytes: int | None = None  # size of the KV pool; None: chosen from the free memory
    block_size: int = 16  # tokens
    scope_share: float = (
        0.25  # of each tier; a scope (group and model) that holds more makes room before others
    )
    host_cache_bytes: int = 0  # blocks that cooled down, in main memory; 0: nothing below the device
    disk_cache_dir: Path | None = None  # and on disk; a folder of this process alone
    disk_cache_bytes: int = 8 << 30
    store: SharedStore | None = None  # and where several servers share it
    coding: ColdCoding = field(default_factory=ColdCoding)  # how it is kept on disk and in the store
    write_policy: "WritePolicy" = "write_through_on_second_hit"
    cold_write_rate: float | None = (
        None  # bytes a second at most that go to the disk, and to the store; None: any
    )
    # Where room is made in idle time; of a tier that is not here as `Marks` has it.
    watermarks: Mapping[Tier, Marks] = field(default_factory=dict)
    layered_loads: bool | None = (
        None  # compute early layers while later ones come up; None: on an accelerator
    )
    threads: int | None = None  # None: torch decides
    trust_remote_code: bool = False
    tool_parser: str | None = None  # None: found from the chat template
    cache_dir: Path = field(default_factory=lambda: default_cache_dir(os.environ))  # converted models
    limits: SchedulerLimits = SchedulerLimits()
