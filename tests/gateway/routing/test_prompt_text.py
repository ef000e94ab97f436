from typing import Any

import pytest

from gateway.routing.prompt_text import prompt_seed


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("body", [{}, {"messages": []}, {"cache_salt": None}])
def test_what_says_nothing_beside_its_prompt_has_the_seed_of_its_scope(
    body: dict[str, Any], counted: bool
) -> None:
    seed = prompt_seed("a", {"prompt": "x"}, counted=counted, salt="s")
    assert prompt_seed("a", body, counted=counted, salt="s") == seed
    others = [
        prompt_seed("b", body, counted=counted, salt="s"),
        prompt_seed("a", body, counted=counted, salt="t"),
        prompt_seed("a", body, counted=counted),
        prompt_seed("a", body, counted=not counted, salt="s"),
        prompt_seed("a", {**body, "cache_salt": "u"}, counted=counted, salt="s"),
    ]
    assert len({seed, *others}) == 6


def test_switches_of_the_template_are_told_apart_unless_tokens_say_them() -> None:
    switched = {"chat_template_kwargs": {"enable_thinking": False}}
    assert prompt_seed("a", switched, counted=False) != prompt_seed("a", {}, counted=False)
    assert prompt_seed("a", switched, counted=True) == prompt_seed("a", {}, counted=True)
