"""Calls of one event loop to the server, many in one write."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from redis.exceptions import NoScriptError, ResponseError

from gateway.shared_state.circuit import Circuit
from gateway.shared_state.clients import ANY, AWAY, loop_client
from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.scripts import Script

Argument: TypeAlias = str | bytes | int | float

_BATCH = 256  # calls in one write
_WAITING = 20_000  # calls that wait to be written; more are not taken
_ROUNDS = 4  # of waiting, where the loop is held up each time
_LATE_S = 0.005  # by which a timer may be late on an idle loop


class _Call:
    __slots__ = ("args", "done", "script")

    def __init__(
        self, script: Script | None, args: tuple[Argument, ...], done: "asyncio.Future[Any] | None"
    ) -> None:
        self.script = script
        self.args = args
        self.done = done


class Pipe:
    """Keeps the order of calls; those that come while others are under way go out together after them.

    A call has its answer, or raises, within two times `timeout_s`: what the calls before it still take, and its own.
    A loop that was busy with other things meanwhile does not count as a server that is late.
    """

    def __init__(self, options: RedisOptions, circuit: Circuit) -> None:
        self._client = loop_client(options)
        self._timeout_s = options.timeout_s
        self._circuit = circuit
        self._waiting: deque[_Call] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._known: set[str] = set()  # scripts that the server has, as far as is known

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """What the script returns.

        Raises:
            AwayError: at once where it is known; else as soon as it is.
            SharedStateError: the server refuses the call.
        """
        return await self.begin(script, keys, args)

    def begin(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()
    ) -> "asyncio.Future[Any]":
        """As `run`, for who must know what came of it even where nobody waits any more; raises AwayError at once."""
        return self._ask(script, (len(keys), *keys, *args))

    async def execute(self, *command: Argument) -> Any:
        """What one command returns; raises as `run` does."""
        return await self._ask(None, command)

    def post(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> bool:
        """Send without waiting for an answer. False: the server is away, and nothing was sent."""
        return self._put(_Call(script, (len(keys), *keys, *args), None))

    async def aclose(self) -> None:
        """Send what waits, then close the connection."""
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=2 * self._timeout_s)
            self._sender.cancel()
        await self._client.aclose()

    def _ask(self, script: Script | None, args: tuple[Argument, ...]) -> "asyncio.Future[Any]":
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self._put(_Call(script, args, done)):
            raise AwayError("the shared state is away, or too many calls wait for it")
        return done

    def _put(self, call: _Call) -> bool:
        if self._circuit.away or len(self._waiting) >= _WAITING:
            return False
        self._waiting.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return True

    async def _send(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                answers = await self._in_time(batch)
            except AWAY as error:
                self._circuit.failed(error)
                self._known.clear()
                waiting, self._waiting = self._waiting, deque()
                _fail([*batch, *waiting], AwayError(f"the shared state is away: {error}"))
                return
            except ANY as error:
                _fail(batch, SharedStateError(str(error)))
                continue
            for call, answer in zip(batch, answers, strict=True):
                _settle(call, answer)

    async def _in_time(self, batch: list[_Call]) -> list[Any]:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._answers(batch))
        try:
            for _ in range(_ROUNDS):
                due = loop.time() + self._timeout_s
                await asyncio.wait([task], timeout=self._timeout_s)
                if task.done():
                    return task.result()
                if loop.time() - due < _LATE_S:
                    break
                # The loop itself was held up: the answer may be there, not read yet.
            raise TimeoutError(f"no answer within {self._timeout_s * 1000:g} ms")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _answers(self, batch: list[_Call]) -> list[Any]:
        answers = await self._write(batch)
        unknown = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # a server that was started anew; these calls come behind the others
            self._known.clear()
            again = await self._write([batch[i] for i in unknown])
            for i, answer in zip(unknown, again, strict=True):
                answers[i] = answer
        for answer in answers:
            if isinstance(answer, AWAY):
                raise answer
        return answers

    async def _write(self, batch: list[_Call]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        new = {
            call.script for call in batch if call.script is not None and call.script.sha not in self._known
        }
        for script in new:  # in front, so that calls keep their order
            pipeline.execute_command("SCRIPT LOAD", script.source)
        for call in batch:
            if call.script is None:
                pipeline.execute_command(*call.args)
            else:
                pipeline.execute_command("EVALSHA", call.script.sha, *call.args)
        answers = list(await pipeline.execute(raise_on_error=False))
        self._known |= {script.sha for script in new}
        return answers[len(new) :]


def _fail(calls: list[_Call], error: SharedStateError) -> None:
    for call in calls:
        if call.done is not None and not call.done.done():
            call.done.set_exception(error)


def _settle(call: _Call, answer: Any) -> None:
    if call.done is None or call.done.done():
        return
    if isinstance(answer, ResponseError):
        call.done.set_exception(SharedStateError(str(answer)))
    elif isinstance(answer, Exception):
        call.done.set_exception(SharedStateError(f"{type(answer).__name__}: {answer}"))
    else:
        call.done.set_result(answer)
