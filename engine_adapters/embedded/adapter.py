"""The embedded engine behind the interface that all engines share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cache_core import BlockPool, PrefixCache, RetentionLimits
from cache_core.flat_record import flat_record
from cache_core.identity import CacheIdentity
from cache_core.metrics import RecordingObserver
from cache_core.tiered import Sweeper, TieredCache, Watermarks
from cache_core.tiers.errors import PurgeFailedError
from cache_core.weights import UpdateEpoch
from engine_adapters.base import (
    Capabilities,
    EngineAdapter,
    Event,
    GenerateRequest,
    Health,
    Purged,
    ReuseReport,
    Tier,
    Usage,
)
from engine_adapters.embedded.choice import Choice
from engine_adapters.embedded.cold_stores import check_disk_folder
from engine_adapters.embedded.cold_tiers import open_cold_tiers
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.engine import Engine
from engine_adapters.embedded.inbox import Inbox
from engine_adapters.embedded.job import Done, Output
from engine_adapters.embedded.model_family import ModelFamily
from engine_adapters.embedded.model_identity import config_digest, files_state, identity
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder, resolve_model
from engine_adapters.embedded.models.chat_template import chat_template_text
from engine_adapters.embedded.models.checkpoint import check_checkpoint
from engine_adapters.embedded.models.progress import stage
from engine_adapters.embedded.preparations import check_device, no_progress_bars
from engine_adapters.embedded.request_grammar import RequestGrammars
from engine_adapters.embedded.sampling import GrammarCompiler
from engine_adapters.embedded.state.device_states import SnapshotsOnDevice
from engine_adapters.embedded.state.prefixes import HybridPrefixes
from engine_adapters.embedded.state.snapshot_store import SnapshotStore
from engine_adapters.embedded.state.state_rows import StateRows
from engine_adapters.embedded.tiering import Tiering
from engine_adapters.embedded.unsupported import UnsupportedModelError
from engine_adapters.errors import EngineError, EngineFailureError

Progress = Callable[[str], None]


def limits_of(scope_share: float) -> RetentionLimits:
    """All scopes together keep half of the blocks at most by hints, or one's share where that is more."""
    usual = RetentionLimits()
    return replace(usual, scope_share=scope_share, total_share=max(scope_share, usual.total_share))


class EmbeddedAdapter(EngineAdapter):
    """Runs one model in this process."""

    def __init__(
        self,
        folder: ModelFolder,
        runner: ModelRunner,
        config: EmbeddedConfig,
        chat_template: str | None = None,
    ) -> None:
        self.folder = folder
        self.runner = runner
        self._config = config
        self._stated = config_digest(folder.path)  # what the loaded model was made by
        self.pool = BlockPool(runner.num_blocks, config.block_size)
        self.observer = RecordingObserver()
        limits = limits_of(config.scope_share)
        self.cache = PrefixCache(
            self.pool, copy_blocks=runner.kv.copy_blocks, limits=limits, observer=self.observer
        )
        self._tokenizer = Tokenizer.from_file(str(folder.tokenizer_path / "tokenizer.json"))
        template = chat_template or chat_template_text(folder.tokenizer_path)
        self._family = ModelFamily(template, self._tokenizer, config.tool_parser)
        self._grammars = RequestGrammars(
            GrammarCompiler(self._tokenizer, runner.vocab_size, runner.eos_token_ids), self._family
        )
        self.states: HybridPrefixes | None = None
        snapshots: SnapshotsOnDevice | None = None
        if runner.state is not None:
            store = SnapshotStore(runner.snapshot_bytes, runner.state.row_bytes, limits=limits)
            self.states = HybridPrefixes(self.cache, store)
            snapshots = SnapshotsOnDevice(store, StateRows(runner.state, runner.device))
        self.tiers: TieredCache | None = None
        if config.host_cache_bytes:
            self.tiers = open_cold_tiers(
                config, folder, runner, self.cache, lambda: self.engine.wake(), self.observer, snapshots
            )
        try:
            self._start(config)
        except BaseException:
            if self.tiers is not None:
                self.tiers.close()  # another try finds the disk folder free
            raise

    def _start(self, config: EmbeddedConfig) -> None:
        below = () if self.tiers is None else tuple(self.tiers.stats())
        self._capabilities = Capabilities(
            model=config.served_name or self.folder.name,
            context_length=self.runner.context_length,
            reports_reuse=True,
            block_size=config.block_size,
            takes_token_ids=True,
            tiers=("device", *below),
            tool_parser=self._family.tool_parser_name,
        )
        tiering: Tiering | None = None
        if self.tiers is not None:
            tiering = Tiering(self.tiers, self.states)
        self.engine = Engine(
            self.runner,
            self.cache,
            self._tokenizer,
            config.limits,
            tiering=tiering,
            states=self.states,
            observer=self.observer,
        )
        self._sweeper = None if self.tiers is None else self._swept(self.tiers, config)

    def _swept(self, tiers: TieredCache, config: EmbeddedConfig) -> Sweeper:
        apart = {tier: Watermarks(marks.start, marks.stop) for tier, marks in config.watermarks.items()}
        return Sweeper(tiers, lambda: self.engine.busy, apart=apart)

    @classmethod
    def load(
        cls, config: EmbeddedConfig, progress: Progress, chat_template: str | None = None
    ) -> "EmbeddedAdapter":
        """Find or make the model's folder, load it and start the engine. Takes seconds: call it off the event loop.

        Raises:
            EngineError: the model cannot be found, read or run; the message says what to do.
        """
        check_device(config.device)
        if config.host_cache_bytes:
            check_disk_folder(config.disk_cache_dir)
        folder = resolve_model(
            config.model,
            cache_dir=config.cache_dir,
            progress=progress,
            trust_remote_code=config.trust_remote_code,
        )
        before = files_state(folder.path)
        with stage(progress, f"loading {folder.name}"), no_progress_bars():
            runner = ModelRunner.load(
                folder.path,
                device=config.device,
                dtype=config.dtype,
                kv_bytes=config.kv_bytes,
                block_size=config.block_size,
                trust_remote_code=config.trust_remote_code,
                threads=config.threads,
            )
        with stage(progress, "warming up"):
            runner.warm_up()
        adapter = cls(folder, runner, config, chat_template)
        if files_state(folder.path) != before:  # its KV would be filed as that of weights it does not have
            adapter._close()
            raise EngineFailureError(
                f"The model in {folder.path} was replaced while it was loaded. Start again."
            )
        return adapter

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        self.engine.check(request)
        choices = [Choice(self._family.pipeline(request, i)) for i in range(request.sampling.n)]
        grammars = await self._grammars.compile(request)
        inbox = Inbox(asyncio.get_running_loop())
        self.engine.submit(request, inbox.put, grammars, self._family.visible_tokens(request))
        ended = False
        try:
            while not ended:
                for item in await inbox.take():
                    if isinstance(item, EngineError):
                        ended = True
                        raise item
                    if isinstance(item, Done):
                        ended = True
                        yield _usage(item, choices)
                    else:
                        for event in self._events(request, choices[item.index], item):
                            yield event
        finally:
            if not ended:
                self.engine.cancel(request.request_id)

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        encoding = await asyncio.to_thread(self._tokenizer.encode, text, add_special_tokens=False)
        return np.asarray(encoding.ids, dtype=np.int32)

    async def counters(self) -> Mapping[str, float]:
        own = self.engine.counters()
        if self.tiers is not None:
            if self.tiers.states is not None:
                own = {**own, **self.tiers.states.counters()}
            self.tiers.host.stats()  # the observer hears how fragmented it is
        return {**own, **flat_record(self.observer.record())}

    async def health(self) -> Health:
        if not self.engine.alive:
            return Health(False, "the engine has stopped")
        away = {} if self.tiers is None else self.tiers.away()
        told = [f"the {tier} tier hangs and is not {what}" for tier, what in away.items()]
        return Health(True, "; ".join(["ready", *told]))

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        if self.tiers is None:
            await asyncio.to_thread(self.cache.flush)
        else:
            await asyncio.to_thread(self.tiers.flush, tiers)
        if self.states is not None and (tiers is None or "device" in tiers):
            self.states.store.flush()

    async def purge(self, scope: str) -> Purged:
        return await asyncio.to_thread(self._purge, scope)

    def _purge(self, scope: str) -> Purged:
        try:
            if self.tiers is None:
                return Purged(self.cache.purge(scope))
            below = self.tiers.purge(scope)
            return Purged(below.blocks, below.pending)
        except PurgeFailedError as error:
            raise EngineFailureError(f"Not all bytes of the scope could be erased: {error}") from error
        finally:
            if self.states is not None and self.tiers is None:  # else those have
                self.states.store.flush(scope)

    async def reload_weights(self, folder: Path) -> None:
        """Go on with the weights of another folder, a checkpoint with the same architecture and configuration.

        Requests under way keep the tokens they have and begin again with their prompts. Nothing computed with the old
        weights is reused any more; what other servers or earlier starts computed with the new ones is.

        Raises:
            EngineError: the folder has no such weights, and nothing was changed; or the engine has stopped.
        """
        await asyncio.to_thread(self._reload, folder)

    def _reload(self, folder: Path) -> None:
        check_checkpoint(folder, trust_remote_code=self._config.trust_remote_code)
        try:
            before = files_state(folder)
            if before[1] != self._stated:
                raise UnsupportedModelError(
                    f"{folder} is for a model that computes otherwise: its config.json differs",
                    "Start a server of its own for it.",
                )
            other = self.runner.other_weights(folder, self._config.trust_remote_code)
            key = identity(self._config, replace(self.folder, path=folder), self.runner)
            if files_state(folder) != before:
                raise EngineFailureError(f"The weights in {folder} were replaced while they were loaded.")
        except (OSError, ValueError) as error:
            raise EngineFailureError(f"The weights in {folder} cannot be loaded: {error}") from error
        self._change(lambda: self.runner.take_weights(other), key)
        self.folder = replace(self.folder, path=folder)

    async def change_weights(self, change: Callable[[], None], epoch: bytes | None = None) -> None:
        """Let `change` alter the model's weights in place, on the engine's thread while nothing computes.

        `epoch` names the new state where its origin can, a training step's id for example; without one it is a state
        that never was before. Requests under way and the cache: as in `reload_weights`.

        Raises:
            EngineError: the engine has stopped.
        """
        await asyncio.to_thread(self._change_in_place, change, epoch)

    def _change_in_place(self, change: Callable[[], None], epoch: bytes | None) -> None:
        key = identity(self._config, self.folder, self.runner)
        changed = UpdateEpoch(key.weights_digest).changed(epoch)
        self._change(change, replace(key, update_epoch=changed))

    def _change(self, change: Callable[[], None], key: CacheIdentity) -> None:
        def do() -> None:
            now = replace(key, update_epoch=UpdateEpoch(key.weights_digest).changed())  # if it fails half way
            try:
                change()
                now = key
            finally:
                self._computed_otherwise(now)

        self.engine.between_steps(do).result()

    def _computed_otherwise(self, key: CacheIdentity) -> None:
        if self.tiers is not None:
            self.tiers.identify(key)
            return
        self.cache.purge_all()
        if self.states is not None:
            self.states.store.flush()

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.close()
        self.engine.stop()
        if self.tiers is not None:
            self.tiers.close()

    def _events(self, request: GenerateRequest, choice: Choice, output: Output) -> list[Event]:
        events = choice.take(output)
        if choice.complete:
            self.engine.finish_choice(request.request_id, output.index)
        return events


def _usage(done: Done, choices: list[Choice]) -> Usage:
    reuse = ReuseReport(
        prompt=done.prompt_tokens,
        reused=done.reused_tokens,
        by_tier=done.reused_by_tier,
        source="embedded",
        status="reported",
    )
    thinking = sum(choice.reasoning_tokens for choice in choices) if choices[0].can_think else None
    return Usage(
        done.prompt_tokens, done.completion_tokens, reuse, thinking, done.queue_s, done.matched_tokens
    )
