"""The model reuses what a set of all prefixes would, however prompts are cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from canon.lint.prefix_model import UNIT, PrefixModel, Replayed

BLOCK = 2  # tokens
WIDTH = BLOCK * UNIT

PROMPTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([b"", b"abc", b"abcdefgh", b"xxxxxxxxxxxx", b"z"]), max_size=6),
        st.sampled_from([b"", b"one", b"other"]),
    ),
    max_size=20,
)


@given(PROMPTS)
def test_every_block_whose_whole_beginning_was_there_is_reused(
    prompts: list[tuple[list[bytes], bytes]],
) -> None:
    model, seen = PrefixModel(str.encode, BLOCK), set[tuple[bytes, bytes]]()
    for pieces, seed in prompts:
        data = b"".join(pieces)
        beginnings = [(seed, data[:end]) for end in range(WIDTH, len(data) + 1, WIDTH)]
        known = next((at for at, one in enumerate(beginnings) if one not in seen), len(beginnings))
        seen.update(beginnings)
        prompt = len(data) // UNIT
        reusable = max(prompt - 1, 0) // BLOCK
        assert model.replay_encoded(pieces, seed) == Replayed(prompt, min(known, reusable) * BLOCK)


@given(PROMPTS)
def test_what_was_not_used_for_long_is_forgotten_and_nothing_else_is_believed(
    prompts: list[tuple[list[bytes], bytes]],
) -> None:
    small, large = (PrefixModel(str.encode, BLOCK, blocks) for blocks in (2, 10_000))
    for pieces, seed in prompts:
        assert small.replay_encoded(pieces, seed).reused <= large.replay_encoded(pieces, seed).reused
