"""Whole system texts, as agents and apps write them: what leaves, and what is somebody's text and stays."""

from pathlib import Path
from typing import Any

import pytest

import canon

DATA = Path(__file__).parents[1] / "data"
LEAVES = "» "  # begins each line that leaves


def texts(name: str) -> list[str]:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n====\n")


def sent(text: str) -> list[dict[str, Any]]:
    body = {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "q"}]}
    result = canon.canonicalize(body, policy="full")
    assert canon.canonicalize(result.body, policy="full").body == result.body
    return result.body["messages"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", texts("texts_of_content"))
@pytest.mark.parametrize("form", ["{}", "You are a helper.\n\n{}"])
def test_what_a_text_an_example_or_a_form_says_stays(text: str, form: str):
    assert sent(form.format(text))[0]["content"] == form.format(text)


@pytest.mark.parametrize("text", texts("texts_with_the_moment"))
def test_what_is_of_the_moment_leaves_and_nothing_else(text: str):
    marked = [line for line in text.split("\n") if line.strip()]
    system, user = sent(text.replace(LEAVES, ""))
    kept = [line.rstrip() for line in system["content"].split("\n") if line.strip()]
    assert kept == [line.rstrip() for line in marked if not line.startswith(LEAVES)]
    note = user["content"].removeprefix("q\n\n[context]\n").removesuffix("\n[/context]")
    moved = [line for line in note.split("\n") if line.strip()]
    assert moved == [line.removeprefix(LEAVES) for line in marked if line.startswith(LEAVES)]
