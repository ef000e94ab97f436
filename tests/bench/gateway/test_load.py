"""The load counts what came back, and what did not; the upstream answers as engines do."""

import asyncio

import orjson

from bench.gateway.bodies import chats, stream_chat
from bench.gateway.load import Requests, closed_loop, open_loop, streams
from bench.gateway.upstream import Upstream


async def serving() -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    return server, int(server.sockets[0].getsockname()[1])


def test_chats_are_one_kilobyte_and_all_differ() -> None:
    bodies = chats(50)
    assert {len(body) for body in bodies} == {1024}
    assert len({orjson.loads(body)["messages"][1]["content"] for body in bodies}) == 50


async def test_every_request_is_answered_and_counted() -> None:
    server, port = await serving()
    closed = await closed_loop(port, Requests(chats(4)), 3, 1.5)
    paced = await open_loop(port, Requests(chats(4)), 100, 0.3)
    server.close()
    assert closed.failed == paced.failed == 0
    assert closed.requests == len(closed.latencies) > 3
    assert paced.requests == len(paced.latencies) == 30
    assert 0 < paced.p50 <= paced.p99


async def test_a_stream_is_whole_or_lost() -> None:
    server, port = await serving()
    whole = await streams(port, stream_chat(5, 2), 4, 5, 0.01)
    short = await streams(port, stream_chat(5, 2), 4, 50, 0.01)
    server.close()
    nobody = await streams(port, stream_chat(5, 2), 2, 5, 0.01)
    assert (whole.lost, whole.events) == (0, 4 * (1 + 5 + 1 + 1))  # role, words, finish, [DONE]
    assert short.lost == 4
    assert nobody.lost == 2
