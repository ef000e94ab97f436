"""One sequence's share of a step."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine_adapters.embedded.state.auxiliary import AuxiliaryState


class Arrival(Protocol):
    """KV of a segment's past that is still on its way."""

    def wait_layer(self, layer: int) -> bool:
        """Wait for one layer's bytes; False: they will not come, and what is computed from them is void."""
        ...


@dataclass(frozen=True, slots=True)
class Segment:
    """New tokens of one sequence, whose earlier tokens are in the cache already."""

    tokens: NDArray[np.int32]  # [n], n >= 1
    past: int  # tokens whose KV is in the cache
    blocks: NDArray[np.int32]  # page table covering past + n tokens; may be longer
    sample: bool  # whether the logits of the last token are wanted
    state: AuxiliaryState | None = (
        None  # of hybrid models: what stands for the `past` tokens; moves on with it
    )
    arrival: Arrival | None = None  # what a layer waits for before it reads the past; None: all is there

    @property
    def size(self) -> int:
        """New tokens."""
        return len(self.tokens)

    @property
    def length(self) -> int:
        """Tokens in the cache once the step is done."""
        return self.past + len(self.tokens)
