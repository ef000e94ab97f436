"""An API server as far as EndpointSlices go, on a loopback port, with TLS and a token."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
TOKEN = "first-token"


def endpoint(
    address: str, pod: str | None = None, *, ready: bool | None = True, **conditions: bool
) -> dict[str, Any]:
    given: dict[str, Any] = {"addresses": [address], "conditions": {**conditions}}
    if ready is not None:
        given["conditions"]["ready"] = ready
    if pod is not None:
        given["targetRef"] = {"kind": "Pod", "name": pod, "namespace": "llm"}
    return given


def slice_of(
    name: str, *endpoints: dict[str, Any], port: int = 30000, kind: str = "IPv4", port_name: str = "http"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "engines"}},
        "addressType": kind,
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


@dataclass
class ApiServer:
    """What it has, and what it was asked. Versions count up with every change."""

    url: str = ""
    token: str = TOKEN
    page: int = 500
    slices: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 100
    oldest: int = 0  # watches from before it are 410
    log: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    lists: int = 0
    watches: list[int] = field(default_factory=list)  # from which versions
    refuse: int | None = None  # a status for everything
    forgets: bool = False  # every version is too old for a watch
    items: Any = None  # of lists, instead of the slices
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def put(self, given: dict[str, Any]) -> None:
        kind = "MODIFIED" if given["metadata"]["name"] in self.slices else "ADDED"
        await self._event(kind, given)
        self.slices[given["metadata"]["name"]] = given

    async def delete(self, name: str) -> None:
        await self._event("DELETED", self.slices.pop(name))

    async def bookmark(self) -> None:
        await self._event("BOOKMARK", {"kind": "EndpointSlice", "metadata": {}})

    async def expire(self) -> None:
        """Running watches end with 410 in their stream, and what was before is forgotten."""
        self.oldest = self.version + 1
        self.version += 1
        status = {"kind": "Status", "code": 410, "reason": "Expired"}
        await self._tell((self.version, {"type": "ERROR", "object": status}))

    async def cut(self) -> None:
        """All connections, without a word."""
        for writer in list(self._writers):
            writer.transport.abort()
        async with self._changed:
            self._changed.notify_all()

    async def _event(self, kind: str, given: dict[str, Any]) -> None:
        self.version += 1
        given["metadata"]["resourceVersion"] = str(self.version)
        await self._tell((self.version, {"type": kind, "object": json.loads(json.dumps(given))}))

    async def _tell(self, entry: tuple[int, dict[str, Any]]) -> None:
        async with self._changed:
            self.log.append(entry)
            self._changed.notify_all()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (line := await reader.readline()).strip():
                headers = {}
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                await self._answer(line.split()[1].decode(), headers, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side left
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, target: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.refuse is not None:
            return self._whole(writer, self.refuse, {"kind": "Status"})
        if headers.get("authorization") != f"Bearer {self.token}":
            return self._whole(writer, 401, {"kind": "Status"})
        if (
            parts.path != PATH.format("llm")
            or query.get("labelSelector") != "kubernetes.io/service-name=engines"
        ):
            return self._whole(writer, 404, {"kind": "Status"})
        if query.get("watch"):
            return await self._watch(writer, int(query["resourceVersion"]))
        return self._list(writer, query)

    def _list(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        self.lists += 1
        begin = int(query.get("continue", "0"))
        items = [self.slices[name] for name in sorted(self.slices)]
        page = items[begin : begin + self.page] if self.items is None else self.items
        metadata = {"resourceVersion": str(self.version)}
        if begin + self.page < len(items):
            metadata["continue"] = str(begin + self.page)
        self._whole(writer, 200, {"kind": "EndpointSliceList", "metadata": metadata, "items": page})

    async def _watch(self, writer: asyncio.StreamWriter, version: int) -> None:
        self.watches.append(version)
        if self.forgets or version < self.oldest:
            return self._whole(writer, 410, {"kind": "Status", "code": 410})
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        seen = version
        while not writer.is_closing():
            async with self._changed:
                await self._changed.wait_for(lambda seen=seen: self.version > seen or writer.is_closing())
            for at, event in [each for each in self.log if each[0] > seen]:
                line = json.dumps(event).encode() + b"\n"
                for piece in (line[:7], line[7:]):  # events do not come one a packet
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                seen = at
                if event["type"] == "ERROR":
                    writer.write(b"0\r\n\r\n")
                    return None
        return None

    def _whole(self, writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)


@asynccontextmanager
async def api_server(certificate: Path, key: Path) -> AsyncIterator[ApiServer]:
    """Up for the block."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    api = ApiServer()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=tls)
    api.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        await api.cut()
        server.close()
