"""What a tenant's own prompts explain: the template, and the beginning that a prompt has in common with one of them."""

import asyncio
from typing import Any

import pytest

from engine_adapters.base import ReuseReport
from gateway.reports.doctor.prober import Told
from gateway.reports.errors import DoctorError
from gateway.reports.isolation.tenant import Answer, Tenant


class Counting:
    """Tokens are bytes, with eleven of a template around them."""

    counts = True

    async def text(self, text: str, *, stream: bool, salt: str | None) -> Told:
        if "refuse" in text:
            raise DoctorError("no")
        prompt = len(text) + 11 if self.counts else None
        return Told(ReuseReport(prompt, 0, None, "test", "reported"), 1, 1.0)


def asked(engine: Any, *texts: str, name: str = "") -> list[Answer]:
    async def ask() -> list[Answer]:
        tenant = Tenant(engine, None, name)
        await tenant.get_ready()
        return [await tenant.ask(text) for text in texts]

    return asyncio.run(ask())


def test_what_is_explained_is_the_template_and_the_longest_common_beginning():
    around = len("time") + 11 - 1
    found = asked(Counting(), "abcdef", "abcxyz", "abcdef", "q")
    assert [each.explained - around for each in found] == [0, 3, 3, 0]


def test_where_tokens_are_not_counted_a_long_template_is_assumed():
    engine = Counting()
    engine.counts = False
    assert [each.explained for each in asked(engine, "abc", "abd")] == [128, 130]


def test_only_what_is_above_both_bounds_is_unexplained():
    answer = Answer(Told(ReuseReport(500, 48, None, "test", "reported"), 1, 1.0), explained=40)
    assert [answer.unexplained(base) for base in (0, 47, 48)] == [48, 48, 0]
    said_nothing = Answer(Told(ReuseReport(500, None, None, "test", "not_reported"), 1, 1.0), explained=40)
    assert said_nothing.unexplained(0) == 0


def test_whose_request_was_refused_is_said():
    with pytest.raises(DoctorError, match=r"^The second tenant: no$"):
        asked(Counting(), "refuse", name="The second tenant")
    with pytest.raises(DoctorError, match=r"^no$"):
        asked(Counting(), "refuse")
