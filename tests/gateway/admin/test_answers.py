"""Every answer of the admin app has an id, errors their one shape, and who asked for what leaves a line."""

import logging
from hashlib import sha256
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gateway.admin.app import AdminApp, AdminParts
from gateway.admin.options import AdminOptions
from gateway.served import Served
from gateway.tenants.purging import Purges

KEY = "an-admin-key-of-16"
ADMIN = {"x-api-key": KEY}


async def scrape(request: Request) -> Response:
    if "fail" in request.query_params:
        raise RuntimeError("unforeseen")
    return PlainTextResponse("figures")


async def asked(method: str, path: str, **how: Any) -> httpx.Response:
    parts: Any = AdminParts(Served(), None, scrape, Purges())  # type: ignore[arg-type]
    app = AdminApp(AdminOptions("127.0.0.1", 0, sha256(KEY.encode()).digest()), parts).app
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        return await client.request(method, path, **how)


@pytest.mark.parametrize(
    ("method", "path", "how", "status", "code"),
    [
        ("GET", "/metrics", {}, 401, "invalid_api_key"),
        ("GET", "/nothing", {"headers": ADMIN}, 404, "unknown_url"),
        ("DELETE", "/metrics", {"headers": ADMIN}, 405, "method_not_allowed"),
        ("POST", "/admin/purge", {"headers": ADMIN, "content": b"{"}, 400, "invalid_json"),
        ("POST", "/admin/purge", {"headers": ADMIN, "content": b"x" * 5000}, 413, "request_too_large"),
        ("GET", "/metrics?fail=1", {"headers": ADMIN}, 500, "internal_error"),
    ],
)
async def test_a_refusal_has_its_id_and_shape(
    method: str, path: str, how: dict[str, Any], status: int, code: str
) -> None:
    answer = await asked(method, path, **how)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (set(error), error["code"]) == ({"message", "type", "param", "code"}, code)
    assert len(answer.headers.get_list("x-request-id")) == 1
    assert answer.headers["x-request-id"].startswith("req_")


async def test_a_good_answer_has_the_id_that_its_client_sent() -> None:
    answer = await asked("GET", "/admin/engines", headers={**ADMIN, "x-request-id": "mine-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (200, "mine-1")


async def test_who_asked_leaves_a_line_but_for_scrapes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kvgate.access"):
        await asked("GET", "/metrics", headers=ADMIN)
        assert caplog.records == []
        await asked("GET", "/metrics")
        await asked("GET", "/admin/engines", headers={**ADMIN, "x-request-id": "mine-1"})
    fields = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [(each["path"], each["status"]) for each in fields] == [("/metrics", 401), ("/admin/engines", 200)]
    assert fields[1]["id"] == "mine-1"
    assert KEY not in caplog.text
