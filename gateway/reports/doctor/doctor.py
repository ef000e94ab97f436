"""The examination itself: a few requests in an order that also an engine with room for one prompt can answer."""

from collections.abc import Callable
from dataclasses import dataclass

from canon.tokens import PromptTokenizer
from engine_adapters.errors import EngineError
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.relay import RemoteCapabilities
from gateway.reports.doctor import questions
from gateway.reports.doctor.block_size import BlockSize, SharedPrefix, find_block_size
from gateway.reports.doctor.checkup import Check, Checkup, kind_shown
from gateway.reports.doctor.kinds import Advice, advice_for, model_cards, route_of
from gateway.reports.doctor.kv_events import listening
from gateway.reports.doctor.prober import Prober, RefusedError, Told, TooMuchError
from gateway.reports.doctor.prompts import ProbePrompts, text_of
from gateway.reports.doctor.render import CHAT_WORDS, CHATS, check_render
from gateway.reports.errors import DoctorError

# Shares of the trunk, longest first: an engine that keeps one prompt still has what the next one shares.
_FIRST = (0.97, 0.86, 0.74, 0.63, 0.51, 0.42, 0.29, 0.17)
_SECOND = (0.93, 0.81, 0.69, 0.57, 0.46, 0.35, 0.23, 0.12)
_TAIL = 12  # words after a shared prefix
_SALTED = 4  # requests
_A_WORD = 1.25  # tokens, at most: the words are such that most vocabularies have each as one
_AROUND = 128  # tokens, at most, that a template puts around a prompt


@dataclass(frozen=True, slots=True)
class Plan:
    """How much an examination may cost. Every request asks for one token."""

    words: int = 1500  # of the longest prompt; about as many tokens
    salt: bool = False
    render: bool = False

    @property
    def requests(self) -> int:
        """At most; one of them may be refused for how it names its limit."""
        blocks = len(_FIRST) + 1 + len(_SECOND)
        return 1 + 3 + blocks + (_SALTED if self.salt else 0) + (len(CHATS) if self.render else 0)

    @property
    def prompt_tokens(self) -> int:
        """At most, hits or not: where words or templates have more tokens than is usual, less is asked."""
        whole = 3 + 1 + sum(_FIRST) + sum(_SECOND) + (_SALTED / 2 if self.salt else 0)
        words = self.words * whole + _TAIL * len(_FIRST + _SECOND) + (CHAT_WORDS if self.render else 0)
        return round(words * _A_WORD) + self.requests * _AROUND


class Doctor:
    """Examines one model of one engine. Use once."""

    def __init__(
        self,
        engine: HttpEngine,
        kind: str,
        *,
        model: str | None = None,
        words: int = 1500,
        tokenizer: PromptTokenizer | None = None,
        kind_known: bool = True,
        kv_events: str | None = None,
        seed: int | str = 0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._kind = kind
        self._advice: Advice = advice_for(kind)
        self._model = model
        self._words = words
        self._tokenizer = tokenizer
        self._kind_known = kind_known
        self._kv_events = kv_events
        self._prompts = ProbePrompts(seed)
        self._say = say

    async def examine(self) -> Checkup:
        """Ask, and answer every question that can be answered.

        Raises:
            DoctorError: the engine does not answer, or refuses a plain chat, or one costs more than was to be expected.
        """
        found = await self._detected()
        model = self._model or (found.models[0] if found.models else None)
        if model is None:
            raise DoctorError("The engine lists no model: name one with --model.")
        plan = Plan(self._longest(found), self._salts(found), self._tokenizer is not None)
        self._say(
            f"{kind_shown(self._kind, known=self._kind_known)} engine, model {model}: at most {plan.requests} requests "
            f"of one token each, with {plan.prompt_tokens:,} prompt tokens"
        )
        prober = Prober(self._engine, model, route_of(self._kind), self._say, plan.prompt_tokens)
        async with listening(self._kind, self._engine.server, found, self._kv_events) as ear:
            checks, block = await self._checks(prober, plan)
            checks.append(await ear.check())
        return Checkup(
            self._engine.server,
            self._kind,
            model,
            found.version,
            tuple(checks),
            block.tokens,
            prober.requests,
            prober.prompt_tokens,
            self._kind_known,
            () if self._kind == "kvgate" else found.missing,  # what that one wants is for gateways before it
        )

    async def _detected(self) -> RemoteCapabilities:
        """What the engine says of itself; of one that says nothing in a known form, the models it lists."""
        if self._model is not None and self._kind == "anthropic":
            return RemoteCapabilities((self._model,), reports_reuse=None)
        try:
            return await self._engine.detect()
        except EngineError as error:
            self._say(f"it says nothing of itself in a known form: {error}")
        if self._model is not None:
            return RemoteCapabilities((self._model,), reports_reuse=None)
        try:
            models = [card.get("id") for card in await model_cards(self._engine)]
        except EngineError as error:
            raise DoctorError(f"{error} Name a model with --model where the API lists none.") from error
        return RemoteCapabilities(tuple(name for name in models if isinstance(name, str)), reports_reuse=None)

    def _longest(self, found: RemoteCapabilities) -> int:
        """Words of the longest prompt: half of a short context, since a word may be more than a token."""
        return self._words if found.context_length is None else min(self._words, found.context_length // 2)

    def _salts(self, found: RemoteCapabilities) -> bool:
        return self._advice.takes_salt and found.takes_salt is not False

    async def _checks(self, prober: Prober, plan: Plan) -> tuple[list[Check], BlockSize]:
        trunk = self._prompts.fresh(plan.words)
        cold = await prober.text(text_of(trunk))
        warm = await prober.text(text_of(trunk))
        stream = await self._streamed(prober, text_of(trunk))
        checks = [
            questions.check_reports(warm, cold, self._advice),
            questions.check_fresh(cold),
            questions.check_repeat(cold, warm, self._advice),
        ]
        found = [check.finding for check in checks]
        # Engines that leave out a zero say nothing of the fresh prompt; that is no reason to stop.
        hits = "no" not in found and found[-1] == "yes" and warm.reuse.status == "reported"
        block, told = await self._block_size(prober, trunk) if hits else (BlockSize(None, False), [])
        checks.append(questions.check_bounds([cold, warm, *([stream] if stream else []), *told]))
        checks.append(questions.check_stream(warm, stream, self._advice))
        if hits:
            checks.append(questions.check_block_size(block))
        if hits and plan.salt:
            checks.append(await self._salt(prober, plan.words // 2))
        checks.append(await check_render(self._tokenizer, self._kind, self._engine, prober))
        return checks, block

    async def _streamed(self, prober: Prober, text: str) -> Told | None:
        """None where the engine refuses a stream with usage."""
        try:
            return await prober.text(text, stream=True)
        except RefusedError:
            return None

    async def _block_size(self, prober: Prober, trunk: tuple[str, ...]) -> tuple[BlockSize, list[Told]]:
        """One row of shared prefixes, and a second one where the first proves nothing."""
        points: list[SharedPrefix] = []
        all_told: list[Told] = []
        found = BlockSize(None, False)
        for shares in (_FIRST, _SECOND):
            self._say("prompts that share a part, to find the block size")
            try:
                if all_told:
                    all_told.append(await prober.text(text_of(trunk)))
                for shared in self._prompts.lengths(len(trunk), shares):
                    told = await prober.text(text_of(self._prompts.branch(trunk, shared, _TAIL)))
                    all_told.append(told)
                    if told.prompt is not None and told.reused is not None:
                        points.append(SharedPrefix(shared, shared + _TAIL, told.prompt, told.reused))
            except TooMuchError as error:
                self._say(str(error))
                return find_block_size(points), all_told
            found = find_block_size(points)
            if found.proven or found.irregular:
                break
        return found, all_told

    async def _salt(self, prober: Prober, words: int) -> Check:
        self._say("one prompt under two salts and without one")
        text = text_of(self._prompts.fresh(words))
        try:
            told = [await prober.text(text, salt=salt) for salt in ("a-salt", "a-salt", "another", None)]
        except RefusedError as error:
            return Check("salt", questions.SALT, "unknown", f"It takes no cache_salt. {error}")
        except TooMuchError as error:
            return Check("salt", questions.SALT, "unknown", f"Not asked. {error}")
        return questions.check_salt(*told)
