"""What templates may see is a checked copy, and what is wrong with it is said with a path of bounded length."""

import pytest

from canon.errors import TemplateError
from canon.tokens.limits import ChatLimits
from canon.tokens.plain_data import PlainCopy


def test_a_name_of_megabytes_is_cut_in_the_path_of_every_value_below_it():
    value = {"x" * 1_000_000: [0, {"y": "\ud800"}]}
    with pytest.raises(TemplateError, match="lone surrogate") as refused:
        PlainCopy(ChatLimits()).copy(value, "tools")
    assert refused.value.param == f"tools.{'x' * 100}[1].y"


def test_the_copy_is_equal_and_shares_no_container():
    value = {"a": [1, {"b": None, "c": "é"}], "d": 1.5}
    copied = PlainCopy(ChatLimits()).copy(value, "tools")
    assert copied == value
    copied["a"][1]["b"] = 2
    assert value["a"][1]["b"] is None


@pytest.mark.parametrize("value", [{1: 2}, {"a": {3}}, [object()]])
def test_what_json_does_not_have_is_refused(value: object):
    with pytest.raises(TemplateError):
        PlainCopy(ChatLimits()).copy(value, "tools")
