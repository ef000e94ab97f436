"""All rows of `kvgate bench canon`."""

import math
import os
from collections.abc import Callable

from bench.canon import noise, speed
from bench.canon.cases import run_cases
from bench.report import Figure, publish, timed_progress
from canon.errors import ModelFolderError
from canon.lint import lint
from canon.lint.prefix_model import PrefixModel
from canon.lint.segments import segments_of
from canon.tokens import PromptTokenizer
from gateway.local.default_tokenizer import default_tokenizer

Progress = Callable[[str], None]
_PROMPT = 1_000_000  # characters
_LINEAR = 1.15  # how fast cost may grow with size: the exponent that is measured
# Rows of the long prompt, and their targets.
_AGAIN = ("1 MB chat with a new last turn: canon, render, tokens", 1 / 20)
_GROWING = ("one message that has grown past 1 MB: the same", 1 / 5)


def main(*, json: bool = False, quick: bool = False) -> bool:
    """Run, print, and say whether every target was reached."""
    progress = timed_progress()
    rounds = 3 if quick else 9
    figures = [*_cases(progress), _noise(progress), *_clean(rounds, progress), *_growth(quick, progress)]
    figures += _prompts(rounds, progress)
    calibration = speed.clean(3).json
    facts = {
        "json.loads + json.dumps of 4 KB": f"{calibration * 1e6:.1f} us",
        "rounds": "quick" if quick else "full",
    }
    return publish(figures, facts, json=json)


def _cases(progress: Progress) -> list[Figure]:
    progress("open cases")
    held = run_cases()
    if held is None:
        why = "needs a checkout: the cases are test data"
        return [Figure("open cases held", "-", None, 0, "share", None, 1, "at least", why)]
    return [
        Figure("open cases held", "-", held.rows, held.hold, "rows", held.hold / held.rows, 1, "at least"),
        Figure("checks that found harm", "-", None, held.harm, "checks", held.harm, 0, "at most"),
    ]


def _noise(progress: Progress) -> Figure:
    """Reuse that a prefix cache without bounds would have, with the rule memory of a gateway."""
    progress("a log with mixed noise")
    pairs = list(noise.log())
    report = lint([pair.noisy for pair in pairs], "full")
    model, reused, prompt = PrefixModel(str.encode), 0, 0
    for pair in pairs:
        replayed = model.replay(segments_of(pair.canonical))
        reused, prompt = reused + replayed.reused, prompt + replayed.prompt
    by_hand = reused / prompt
    return Figure(
        f"reuse of a noisy log under full (as it is: {report.reuse_before:.3f})", "canonical by hand", by_hand,
        report.reuse_after, "rate", report.reuse_after / by_hand, 0.97, "at least",
    )  # fmt: skip


def _clean(rounds: int, progress: Progress) -> list[Figure]:
    progress("a 4 KB chat that needs no edit")
    figures = speed.clean(rounds * 3)
    return [
        Figure(f"a clean 4 KB chat under {policy}", "json.loads + dumps", figures.json * 1e6, cost * 1e6, "us",
               cost / figures.json, 4 if policy == "safe" else 12, "at most")
        for policy, cost in figures.canon.items()
    ]  # fmt: skip


def _growth(quick: bool, progress: Progress) -> list[Figure]:
    progress("bodies from 10 KB to 10 MB")
    found = speed.growth(1 if quick else 3)
    small, large = min(speed.SIZES), max(speed.SIZES)
    rows = []
    for policy, costs in found.items():
        exponent = math.log(costs[large] / costs[small]) / math.log(large / small)
        rows.append(
            Figure(f"CPU time from 10 KB to 10 MB under {policy}, exponent", "10 KB", costs[small], costs[large], "s",
                   exponent, _LINEAR, "at most")
        )  # fmt: skip
    return rows


def _prompts(rounds: int, progress: Progress) -> list[Figure]:
    progress("a prompt of 1 MB")
    try:
        folder = default_tokenizer(progress)
    except ModelFolderError as error:
        return [
            Figure(name, "plain encode", None, 0, "s", None, target, "at most", str(error))
            for name, target in (_AGAIN, _GROWING)
        ]
    plain = _plain(folder / "tokenizer.json")
    figures = speed.prompts(PromptTokenizer.from_folder(folder), plain, rounds, _PROMPT)
    peer = f"plain encode, {figures.tokens:,} tokens"
    return [
        Figure(name, peer, figures.plain, ours, "s", ours / figures.plain, target, "at most")
        for (name, target), ours in ((_AGAIN, figures.again), (_GROWING, figures.growing))
    ]


def _plain(file: os.PathLike[str]) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
