"""A process of a server, seen from inside: what it is to do, and whether its parent still lives."""

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence

import msgspec

from gateway.workers.plan import Plan

log = logging.getLogger("kvgate.workers")

_END_S = 3.0  # how long an orphan may take to end by itself


class Seat:
    """Made by `take`, first of all that a child does; used from any thread.

    The parent holds the other end of the control socket. When that closes, however the parent ended, this process
    ends too: on a signal to itself, and if that takes long, at once.
    """

    def __init__(self, plan: Plan, control: socket.socket) -> None:
        self.plan = plan
        self._control = control
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="kvgate-parent", daemon=True).start()

    @classmethod
    def take(cls, descriptor: int) -> "Seat":
        """Read the plan from an inherited control socket; waits for it."""
        # Until somebody wants it: it would end the process, and a parent passes it on.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        control = socket.socket(fileno=descriptor)
        control.set_inheritable(False)
        line = b""
        while not line.endswith(b"\n"):
            line += control.recv(1) or _orphaned()
        return cls(Plan.read(line), control)

    def say_ready(self, models: Sequence[str] = ()) -> None:
        """Tell the parent; `models` are what an operator is told."""
        self._tell({"ready": models})

    def say(self, line: str) -> None:
        """Have the parent tell an operator so."""
        self._tell({"say": line})

    def _tell(self, message: Mapping[str, str | Sequence[str]]) -> None:
        with self._lock:
            self._control.sendall(msgspec.json.encode(message) + b"\n")

    def _watch(self) -> None:
        while True:
            try:
                if self._control.recv(64):
                    continue
            except OSError:
                pass  # the same to us
            break
        log.error("the parent process has gone; this one ends", extra={"fields": {"role": self.plan.name}})
        shutil.rmtree(self.plan.folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_S)
        os._exit(1)


def _orphaned() -> bytes:
    os._exit(1)
