"""What the bench measures is what it says."""

import json

from bench.canon import noise, speed
from canon.lint.prefix_model import PrefixModel
from canon.lint.segments import segments_of


def by_name(body: dict) -> dict:
    return {tool["function"]["name"]: tool for tool in body["tools"]}


def test_the_noisy_log_says_the_same_as_the_one_by_hand():
    for pair in list(noise.log())[:10]:
        noisy, by_hand = pair.noisy, pair.canonical
        assert by_name(noisy) == by_name(by_hand)
        assert noisy["messages"][1:-1] == by_hand["messages"][1:-1]
        clock = by_hand["messages"][-1]["content"].split("\n\n")[-1]
        assert clock.split("\n")[0] in noisy["messages"][0]["content"].replace("\r", "")


def test_the_log_by_hand_is_reused_and_the_noisy_one_is_not():
    reused = {"noisy": 0, "canonical": 0}
    models = {name: PrefixModel(str.encode) for name in reused}
    for pair in noise.log():
        for name, model in models.items():
            reused[name] += model.replay(segments_of(getattr(pair, name))).reused
    assert reused["canonical"] > 10 * reused["noisy"]


def test_the_small_body_is_of_the_size_it_is_named_for():
    assert 3_800 < len(json.dumps(speed.small_body())) < 4_400
