"""What an operator may set about the HTTP surface. Every bound of the gateway is a field here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from canon.policy import RULES_VERSION
from canon.slots import CONFIRMATIONS
from gateway.aliases import Alias
from gateway.canonical.policies import PolicyFor
from gateway.limits.queue_settings import QueueSettings
from gateway.limits.tenant_limits import NO_LIMITS, TenantLimits
from gateway.telemetry.otel.options import OtelOptions

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CanonSettings:
    """How requests are rewritten before they are tokenized, and what is remembered for it."""

    policies: tuple[PolicyFor, ...] = ()  # where none covers a request: `safe`
    rules_version: int = RULES_VERSION  # for conversations that begin; running ones keep theirs
    slot_confirmations: int = CONFIRMATIONS  # different values that make a gap in a line a learned slot
    memory_bytes: int = 64 * MIB  # of what conversations were sent, which is prompt text
    memory_ttl_s: float = 24 * 3600.0  # what was not used for so long is forgotten
    session_headers: tuple[str, ...] = ("x-kvgate-session", "x-session-id")  # name a client's conversation


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Bounds and periods. Sizes are bytes and periods seconds, where the name does not say otherwise."""

    max_body_bytes: int = 16 * MIB  # one request's body
    body_timeout_s: float = 60.0  # how long a client may take to send its body
    max_in_flight: int = 1024  # requests being read, waiting or generating; more get 429
    max_buffered_bytes: int = 512 * MIB  # bodies of all requests in flight together; more get 429
    max_choices: int = 128  # prompts times n, in one request
    longest_pin_s: float = 600.0  # how long a request may ask that its prefix is kept
    max_stops: int = 16  # stop strings in one request
    prompts_at_once: int = 8  # engine requests one completions request runs at the same time
    max_queued_events: int = 256  # events of one request read from the engine and not yet written
    keepalive_s: float = 10.0  # an SSE comment is sent after this long without a frame
    write_stall_s: float = 300.0  # a client that takes no byte for this long is dropped
    cancel_wait_s: float = 5.0  # how long a cancelled request may take to leave the engine
    inline_prompt_bytes: int = 20_000  # larger prompts are rendered and encoded off the event loop
    inline_parse_bytes: int = 256 * 1024  # larger bodies are parsed off the event loop
    prompt_threads: int = 2  # threads which do that
    memory_threads: int = 16  # threads which wait for a conversation memory on a server
    canon: CanonSettings = field(default_factory=CanonSettings)
    aliases: Mapping[str, Alias] = field(default_factory=dict)  # other names for models
    usage: Literal["standard", "full"] = "standard"  # full: `usage.kvgate` in every answer
    metrics: bool = True  # whether /metrics is served on the port of requests
    otel: OtelOptions | None = None  # traces and metrics that are sent; None: none
    limits: TenantLimits = NO_LIMITS  # of tenants that have none of their own
    max_running: Mapping[str, int] = field(default_factory=dict)  # by engine: requests at one replica of it
    queue: QueueSettings = field(default_factory=QueueSettings)  # where others wait for it
    retry_after_s: int = 2  # what Retry-After says with 429 and 503
