"""One schema for what engines say they reused: readers of usage payloads, one profile an engine or API."""

from engine_adapters.reuse.profiles import PROFILES, Profile, read_usage
from engine_adapters.reuse.reading import NO_USAGE, NOTHING, UsageRead

__all__ = ["NOTHING", "NO_USAGE", "PROFILES", "Profile", "UsageRead", "read_usage"]
