"""`kvgate serve` without a configuration: one model in this process. Options that it cannot use are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast, get_args

from canon.errors import PolicyError
from engine_adapters.base import Tier
from engine_adapters.embedded.cold_config import Marks, swept_by_nobody
from engine_adapters.embedded.config import EmbeddedConfig
from gateway.canonical.policies import parse_policy
from gateway.commands.refuse import refuse
from gateway.commands.serve.choices import ControlTokens, Device, Dtype, WritePolicy
from gateway.commands.serve.cold_cache import cold_coding, shared_store
from gateway.commands.serve.where import Where
from gateway.config.server import ServerConfig
from gateway.ledger.books import LedgerBooks
from gateway.ledger.capture import CaptureSettings, capture_settings
from gateway.ledger.errors import LedgerError
from gateway.local import embedded
from gateway.logs import configure_logs
from gateway.process.listener import ListenError
from gateway.reload.live import Configured
from gateway.secrets import SecretError
from gateway.settings import MIB, CanonSettings, GatewaySettings
from gateway.telemetry.otel.options import OtelOptionsError, otel_options
from gateway.workers.launch import Parts, Serving, run

_GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model, where it runs, how its prompts are made and its answers read."""

    name: str | None
    served_name: str | None
    device: Device
    dtype: Dtype
    kv_cache_gib: float | None
    block_size: int
    scope_share: float
    threads: int | None
    chat_template: Path | None
    control_tokens: ControlTokens
    tool_parser: str | None
    trust_remote_code: bool


@dataclass(frozen=True, slots=True)
class CodingOptions:
    """How blocks are kept below main memory."""

    compression: int | None
    quantize: Literal["int8", "fp8"] | None
    quantize_error: float
    secret_file: Path | None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The store that several servers share."""

    folder: Path | None
    gib: float
    mooncake: str | None
    mooncake_host: str
    mooncake_gib: float
    secret_file: Path | None
    mounted: bool

    @property
    def wanted(self) -> bool:
        """Whether one was asked for."""
        return self.folder is not None or self.mooncake is not None


@dataclass(frozen=True, slots=True)
class TierOptions:
    """The tiers below the device."""

    host_gib: float
    disk_dir: Path | None
    disk_gib: float
    write_policy: WritePolicy
    write_mib_s: float | None
    watermarks: tuple[str, ...]  # TIER=START:STOP
    coding: CodingOptions
    store: StoreOptions


@dataclass(frozen=True, slots=True)
class KeptOptions:
    """What is kept of requests."""

    ledger: str | None
    ledger_keep: str | None
    bodies: Path | None
    share: float
    redact: tuple[str, ...]
    redact_patterns: tuple[str, ...]
    structure_only: bool
    max_gib: float

    def capture(self) -> CaptureSettings | None:
        """Of bodies; None: none is kept. Raises LedgerError."""
        if self.bodies is None:
            return None
        return capture_settings(
            self.bodies,
            self.share,
            self.redact,
            self.redact_patterns,
            self.structure_only,
            max_gib=self.max_gib,
        )


def serve(
    where: Where,
    model: ModelOptions,
    tiers: TierOptions,
    kept: KeptOptions,
    canon_policies: tuple[str, ...],
    max_body_mib: float,
    environ: Mapping[str, str],
) -> int:
    """Serve until a signal; the exit status of this process."""
    missing = embedded.missing_packages()
    if missing:
        refuse(f"The embedded engine needs {', '.join(missing)}: pip install 'kvgate[embedded]'")
    engine = _engine(model, tiers, environ)
    settings = _settings(canon_policies, max_body_mib, environ)
    configure_logs(json=where.json)
    options = embedded.EmbeddedOptions(engine, model.chat_template, model.control_tokens.value)
    try:
        capture = kept.capture()
        parts = Parts(
            where.options(ServerConfig()),
            settings,
            partial(embedded.load_embedded, options),
            partial(embedded.embedded_prompts, options),
            lambda: Serving(Configured(settings)),
            books=lambda leads: LedgerBooks(kept.ledger, environ, kept.ledger_keep, capture, leads=leads),
        )
        return run(parts, where.workers(ServerConfig()), where.seat)
    except (LedgerError, ListenError) as error:
        refuse(str(error))


def _engine(model: ModelOptions, tiers: TierOptions, environ: Mapping[str, str]) -> EmbeddedConfig:
    if tiers.disk_dir is not None and not tiers.host_gib:
        refuse("--disk-cache-dir needs --host-cache-gib: blocks reach the disk through main memory")
    if tiers.store.wanted and not tiers.host_gib:
        refuse("A shared store needs --host-cache-gib: blocks reach it through main memory")
    coding, store = tiers.coding, tiers.store
    try:
        return EmbeddedConfig(
            model=model.name,
            served_name=model.served_name,
            device=model.device.value,
            dtype=model.dtype.value,
            kv_bytes=None if model.kv_cache_gib is None else int(model.kv_cache_gib * _GIB),
            block_size=model.block_size,
            scope_share=model.scope_share,
            host_cache_bytes=int(tiers.host_gib * _GIB),
            disk_cache_dir=tiers.disk_dir,
            disk_cache_bytes=int(tiers.disk_gib * _GIB),
            watermarks=_watermarks(tiers),
            write_policy=tiers.write_policy.value,
            cold_write_rate=None if tiers.write_mib_s is None else tiers.write_mib_s * MIB,
            store=shared_store(
                store.folder,
                store.gib,
                store.mooncake,
                store.mooncake_host,
                store.mooncake_gib,
                store.secret_file,
                environ,
                mounted=store.mounted,
            ),
            coding=cold_coding(
                coding.compression, coding.quantize, coding.quantize_error, coding.secret_file, environ
            ),
            threads=model.threads,
            trust_remote_code=model.trust_remote_code,
            tool_parser=model.tool_parser,
        )
    except SecretError as error:
        refuse(str(error))


def _watermarks(tiers: TierOptions) -> dict[Tier, Marks]:
    found: dict[Tier, Marks] = {}
    for stated in tiers.watermarks:
        name, _, shares = stated.partition("=")
        if name not in get_args(Tier):
            refuse(f"--watermark {stated}: a tier is one of {', '.join(get_args(Tier))}")
        tier = cast(Tier, name)
        start, _, stop = shares.partition(":")
        try:
            found[tier] = Marks(float(start), float(stop))
        except ValueError as error:
            refuse(f"--watermark {stated} is no TIER=START:STOP: {error}")
        store = tiers.store
        why = swept_by_nobody(tier, tiers.host_gib, tiers.disk_dir, store.folder, store.mooncake is not None)
        if why is not None:
            refuse(f"--watermark {stated} would count for nothing: {why}")
    return found


def _settings(policies: tuple[str, ...], max_body_mib: float, environ: Mapping[str, str]) -> GatewaySettings:
    try:
        canon = CanonSettings(policies=tuple(map(parse_policy, policies)))
        otel = otel_options(environ)
    except PolicyError as error:
        refuse(f"--canon-policy: {error}")
    except OtelOptionsError as error:
        refuse(str(error))
    return GatewaySettings(max_body_bytes=int(max_body_mib * MIB), canon=canon, otel=otel)
