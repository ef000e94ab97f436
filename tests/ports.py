"""Loopback ports for servers that are told a number before they listen, or that must come back at the same one."""

import socket

_kept: list[socket.socket] = []


def free_port() -> int:
    """One that nobody listens at, and that nobody else gets while this test process lives.

    A socket stays bound to it, so that no other process is given it between here and the server's start, or while a
    killed server is away. A server may listen there all the same, if it sets SO_REUSEADDR or SO_REUSEPORT, as
    servers do. Connections to it are refused as long as none does.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind(("127.0.0.1", 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port
