"""A process of a server, seen from its parent."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.workers.plan import Plan

# The child imports what its parent imports, whatever lies in the folder that it runs in.
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from gateway.cli import main; "
    "sys.argv[0] = 'kvgate'; main()"
)
_LINE = 1 << 24  # bytes: names of all models are in one


def command(arguments: Sequence[str]) -> list[str]:
    """How `kvgate` with these arguments is run once more; `{seat}` stands for the control socket's number."""
    return [sys.executable, "-c", _BEGIN, json.dumps(sys.path), *arguments, "--seat", "{seat}"]


class Child:
    """One process. Started with `start`; used from one event loop. `tell` gets lines that an operator is to see."""

    def __init__(
        self,
        plan: Plan,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        control: asyncio.StreamWriter,
        tell: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self._process = process
        self._reader = reader
        self._control = control
        self._tell = tell
        self.ready: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.create_task(self._wait())
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def start(cls, plan: Plan, arguments: Sequence[str], tell: Callable[[str], None]) -> "Child":
        """Run it; raises OSError where it cannot be run."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *[each.replace("{seat}", str(number)) for each in arguments],
                pass_fds=(number,),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a signal from a terminal comes to the parent, which passes it on
            )
        reader, control = await asyncio.open_connection(sock=ours, limit=_LINE)
        control.write(plan.line())
        return cls(plan, process, reader, control, tell)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        return self.ready.done() and not self.ready.cancelled()

    @property
    def serves(self) -> bool:
        return self.is_ready and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def signal(self, number: int) -> None:
        """Send it a signal, where it still runs."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _wait(self) -> int:
        """Its exit status; negative: the signal that ended it."""
        status = await self._process.wait()
        self.kill()  # the group outlives its leader where the engine's own processes hang
        self._hearing.cancel()
        self._control.close()
        if not self.ready.done():
            self.ready.cancel()
        return status

    async def _hear(self) -> None:
        with suppress(ConnectionError, ValueError):
            while line := await self._reader.readline():
                said = json.loads(line)
                if "say" in said:
                    self._tell(str(said["say"]))
                elif not self.ready.done():
                    self.ready.set_result([str(name) for name in said["ready"]])
