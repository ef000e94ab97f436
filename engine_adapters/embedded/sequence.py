"""One choice of one request while the engine works on it."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cache_core import InFlight, Lease, RetentionHints
from cache_core.tiered import Ask, Fetch, OwnLoad, SeenBelow
from engine_adapters.base import GenerateRequest, Tier
from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer
from engine_adapters.embedded.output.stop_strings import StopStrings
from engine_adapters.embedded.sampling import SamplingState
from engine_adapters.embedded.state.auxiliary import AuxiliaryState


@dataclass(eq=False, slots=True)
class Sequence:
    """Tokens, lease and samplers of one choice.

    `tokens[:length]` are prompt and generated tokens; the KV of the first `computed` of them is in the pool. A sequence
    is in the batch exactly while it holds a lease.
    """

    request: GenerateRequest
    index: int  # which choice of the request
    max_length: int  # tokens, prompt and completion together, after which it ends with "length"
    arrival: float  # seconds on the scheduler's clock
    sampling: SamplingState
    detokenizer: IncrementalDetokenizer
    stops: StopStrings
    tokens: NDArray[np.int32] = field(init=False)
    length: int = field(init=False)
    computed: int = 0
    lease: Lease | None = None
    reused: int | None = None  # prompt tokens whose prefill was skipped; None before the first admission
    matched: int | None = None  # prompt tokens whose KV was there; hybrid models may reuse less of them
    state: AuxiliaryState | None = None  # hybrid models, while it holds a lease: of its `computed` tokens
    keep_at: list[int] = field(default_factory=list)  # where its state is still to be kept, ascending
    flushes: int = 0  # of the snapshots when it began
    covered: int = 0  # tokens whose KV some tier had when those below the device were asked
    follows: "tuple[Sequence, int] | None" = None  # whose state, kept at which boundary, it waits for
    waits_for: InFlight | None = None
    ask: Ask | None = None  # while tiers below the device are asked for it, and what they have comes up
    below: SeenBelow | None = None  # what those tiers had of it when they first answered
    looks: int = 0  # how often they were
    missed: int = 0  # tokens that would not be cached when what it waits for has come up
    fetch: Fetch | None = None  # what had brought up a part of its prefix when it was admitted
    fetched: int = 0  # leading tokens for which that counts
    coming: OwnLoad | None = None  # what comes up into its own blocks, while it holds a lease
    came: Counter[Tier] = field(default_factory=Counter)  # prompt tokens that did, by tier
    siblings: list["Sequence"] = field(default_factory=list)  # choices that fork off after this one's prefill
    queue_s: float | None = None  # seconds that it waited for its first admission
    finished: bool = False

    def __post_init__(self) -> None:
        prompt = self.request.prompt_ids
        self.length = len(prompt)
        self.tokens = np.empty(max(self.max_length, self.length), dtype=np.int32)
        self.tokens[: self.length] = prompt

    @property
    def prompt_length(self) -> int:
        """Prompt tokens."""
        return len(self.request.prompt_ids)

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return self.length - self.prompt_length

    @property
    def hints(self) -> RetentionHints | None:
        """How long what it leaves should stay cached."""
        wish = self.request.retention
        return None if wish is None else RetentionHints(wish.pin_s, wish.ttl_s, wish.priority)

    @property
    def known(self) -> NDArray[np.int32]:
        """Prompt and generated tokens, shape [length]; a view."""
        return self.tokens[: self.length]

    @property
    def decoding(self) -> bool:
        """Whether only the last sampled token is not computed yet."""
        return self.generated > 0 and self.computed == self.length - 1

    @property
    def stops_at(self) -> int:
        """Tokens up to which it may be computed in one go."""
        return self.length if self.coming is None else min(self.coming.limit(self.computed), self.length)

    def append(self, token_id: int) -> None:
        """Add a sampled token."""
        self.tokens[self.length] = token_id
        self.length += 1

    def ends_at(self, token_id: int, eos_token_ids: tuple[int, ...]) -> bool:
        """Whether a sampled token ends this choice; it is then not part of its text."""
        params = self.request.sampling
        return token_id in params.stop_token_ids or (token_id in eos_token_ids and not params.ignore_eos)

    def text_of(self, token_id: int) -> tuple[str, str | None]:
        """The text that a sampled token completes, and the stop string it reached."""
        result = self.stops.push(self.detokenizer.push(token_id))
        return result.text, result.stop

    def flush(self) -> str:
        """The text that was held back, at the end of this choice."""
        result = self.stops.push(self.detokenizer.flush())
        return result.text if result.stop is not None else result.text + self.stops.flush()
