"""A server whose processes do nothing but live, die and listen: `python -m tests.gateway.workers.supervised ...`.

As the parent it writes a line for each child into its log folder; as a child it reads from there what to do.
"""

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from gateway.logs import configure_logs
from gateway.process.listener import listen
from gateway.workers.seat import Seat
from gateway.workers.supervisor import Patience, Supervisor


def parent(notes: str, workers: str, engine: str) -> int:
    configure_logs(json=False)
    arguments = [sys.executable, "-m", __spec__.name, "child", notes, "{seat}"]
    patience = Patience(
        restarts=3, first_wait_s=0.01, last_wait_s=0.05, steady_s=1000, drain_s=60, close_s=60
    )
    supervisor = Supervisor(
        arguments, "127.0.0.1", 0, int(workers), engine=engine == "engine", json=True, patience=patience
    )
    return supervisor.run()


def child(notes: str, descriptor: str) -> int:
    seat = Seat.take(int(descriptor))
    name = seat.plan.name.replace(" ", "-")
    folder = Path(notes)
    note(folder, f"{name} began {os.getpid()}")
    if (folder / f"{name}.fails").exists():
        return 7
    # No threading.Event: its lock may be held by the very thread that the handler runs in.
    ended: list[int] = []

    def take(number: int, _: object) -> None:
        note(folder, f"{name} heard {signal.Signals(number).name}")
        if number != signal.SIGHUP and not (folder / f"{name}.stays").exists():
            ended.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, take)
    listener = None
    if seat.plan.role == "worker":
        listener = listen(seat.plan.host, seat.plan.port, shared=True)
        threading.Thread(target=answer, args=(listener, name), daemon=True).start()
    while (folder / f"{name}.slow").exists() and not ended:
        time.sleep(0.02)
    if not ended:
        seat.say(f"{name} knows it")
        seat.say_ready([name])
    while not ended:
        time.sleep(0.02)
    note(folder, f"{name} ends")
    return 0


def answer(listener: socket.socket, name: str) -> None:
    listener.setblocking(True)
    while True:
        connection, _ = listener.accept()
        connection.sendall(name.encode())
        connection.close()


def note(folder: Path, line: str) -> None:
    with (folder / "notes").open("a") as file:
        file.write(f"{time.monotonic():.6f} {line}\n")


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    sys.exit(parent(*rest) if role == "parent" else child(*rest))
