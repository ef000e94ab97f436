"""A template that breaks prefixes by itself is found by asking it."""

import pytest

from canon.tokens.limits import ChatLimits
from canon.tokens.prefix_hazards import prefix_hazards
from canon.tokens.template import ChatTemplate

DATED = "a template that writes the date"
FORGETS = "a template that takes thinking out of earlier turns"
TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
THOUGHTS = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "causes"),
    [
        (TURNS, []),
        (THOUGHTS, []),
        ("{{ strftime_now('%d %b %Y') }}" + TURNS, [DATED]),
        ("{{ strftime_now('%H') }}" + TURNS, [DATED]),
        ("{{ date_string if date_string is defined else '26 Jul 2024' }}" + TURNS, []),
        (
            "{% for m in messages %}{% if loop.last %}{{ m.thinking }}{% endif %}{{ m.content }}{% endfor %}",
            [FORGETS],
        ),
        (
            "{{ strftime_now('%Y') }}{% for m in messages %}{% if loop.last %}{{ m.reasoning }}{% endif %}{% endfor %}",
            [DATED, FORGETS],
        ),
        ("{{ raise_exception('no') }}", []),
    ],
)
def test_what_a_template_does_to_prefixes_is_told(source: str, causes: list[str]) -> None:
    found = list(prefix_hazards(ChatTemplate(source, {}, ChatLimits())))
    assert [finding.cause for finding in found] == causes
    assert all(finding.rule == "template" and finding.fix for finding in found)
