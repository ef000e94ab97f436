"""The listening socket, opened before anything heavy so that a taken port is said at once."""

import errno
import ipaddress
import socket


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to do."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Raises ListenError.

    `shared`: other processes of this user may listen there too, and the kernel spreads connections over them.
    """
    listener = bound(host, port, shared=shared)
    try:
        # Listening now makes a second server on this port fail here and not later.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ListenError(_reason(error, host, port)) from None
    listener.setblocking(False)
    return listener


def bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that keeps a port and does not listen. Raises ListenError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise ListenError(f"The host '{host}' is not known.") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ListenError(_reason(error, host, port)) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """`http://127.0.0.1:8000`"""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    host = listener.getsockname()[0].split("%")[0]
    return ipaddress.ip_address(host).is_loopback


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use; choose another with --port."
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights; choose one above 1023 with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine."
    return f"Port {port} on {host} cannot be opened: {error.strerror}."
