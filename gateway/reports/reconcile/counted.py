"""An engine's own counters of prompt tokens, whatever it calls them."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine_adapters.remote.reuse_counters import sglang_reuse, total, vllm_reuse


@dataclass(frozen=True, slots=True)
class Counted:
    """Prompt tokens since the engine's start. None: it does not count that."""

    prompt: int | None = None
    reused: int | None = None
    recomputed: int | None = None

    @property
    def anything(self) -> bool:
        """Whether it counts at all."""
        return (self.prompt, self.reused, self.recomputed) != (None, None, None)


def counted(counters: Mapping[str, float]) -> Counted:
    """What flat counters of any engine say; nothing where they have none of the known names."""
    if "recomputed_tokens" in counters:  # the embedded engine's
        names = ("prompt_tokens", "reused_tokens", "recomputed_tokens")
        return Counted(*(int(counters[name]) if name in counters else None for name in names))
    if (computed := total(counters, "llamacpp:prompt_tokens_total")) is not None:
        reused = total(counters, "llamacpp:prompt_tokens_cached_total")  # of newer builds
        return Counted(None if reused is None else computed + reused, reused, computed)
    for read in (vllm_reuse, sglang_reuse):
        found = read(counters)
        if found.prompt is not None:
            rest = None if found.reused is None else found.prompt - found.reused
            return Counted(found.prompt, found.reused, rest)
    return Counted()
