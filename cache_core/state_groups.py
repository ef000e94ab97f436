"""State groups: what a model keeps of a prefix, kind by kind. A prefix is whole where every group's part is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from cache_core.tokens import Tokens

if TYPE_CHECKING:
    import torch

# Copies between the device and a row in main memory, uint8 [bytes]. On an accelerator it queues the copy on the
# current stream.
RowCopy = Callable[["torch.Tensor"], None]


class StateGroup(IntEnum):
    """`BlockHeader.group`: part of a key, so that the groups of one boundary are apart."""

    ATTENTION = (
        0  # keys and values, a part for each block; all of them, also where a layer sees a window only
    )
    RECURRENT = 1  # recurrent and convolution states: one row that stands for everything before its boundary


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StateOnDevice:
    """A row that the device holds and nobody changes, for as long as somebody holds this."""

    length: int  # tokens it stands behind, whole blocks
    read: RowCopy  # into the row given


class StateLanding(Protocol):
    """Room on the device for a row that comes up."""

    def write(self, row: "torch.Tensor") -> None:
        """Fill it from the row given. See `RowCopy`."""
        ...

    def keep(self) -> None:
        """It is filled: usable from now on, unless its scope was forgotten since the room was made."""
        ...


class DeviceStates(Protocol):
    """The rows on the device, which whoever runs the model keeps beside its KV. Any thread may call."""

    def along(self, tokens: Tokens, scope: str) -> Sequence[StateOnDevice]:
        """Those that stand behind `tokens` or a beginning of them, shortest first."""
        ...

    def deepest(self, tokens: Tokens, scope: str, limit: int) -> int:
        """Length of the longest one behind a beginning of `tokens[:limit]`; 0: there is none."""
        ...

    def landing(self, tokens: Tokens, scope: str) -> StateLanding:
        """Room for the row behind `tokens`."""
        ...

    def forget(self, scope: str | None) -> int:
        """Drop a scope's rows (None: all) at once, and whatever is landing of it; says how many there were."""
        ...
