"""The memory of encodings stays within its bytes and forgets the least recently used."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from canon.tokens.memo import EncodingMemo, text_key


def _ids(length: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.zeros(length, dtype=np.int32)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200)), max_size=60), st.integers(0, 4000))
def test_it_never_holds_more_than_its_bound(entries: list[tuple[int, int]], bound: int) -> None:
    memo = EncodingMemo(bound)
    for name, length in entries:
        memo.put([(text_key(b"", str(name)), _ids(length))])
        assert 0 <= memo.size_bytes <= bound
    assert (memo.size_bytes == 0) == (len(memo) == 0)


def test_the_least_recently_used_entry_goes_first() -> None:
    memo = EncodingMemo(3 * 300)
    keys = [text_key(b"", name) for name in "abcd"]
    memo.put((key, _ids(1)) for key in keys[:3])
    memo.get(keys[:1])
    memo.put([(keys[3], _ids(1))])
    assert [ids is not None for ids in memo.get(keys)] == [True, False, True, True]


def test_an_entry_larger_than_the_whole_memory_displaces_nothing() -> None:
    memo = EncodingMemo(1000)
    small, large = text_key(b"", "small"), text_key(b"", "large")
    memo.put([(small, _ids(1))])
    memo.put([(large, _ids(10_000))])
    assert memo.get([large])[0] is None
    assert memo.get([small])[0] is not None


def test_one_text_in_two_forms_has_two_keys() -> None:
    assert text_key(b"1", "text") != text_key(b"2", "text")


def test_short_and_long_texts_in_any_form_have_keys_of_their_own() -> None:
    forms = [
        text_key(b"scope", scope) + end
        for scope in ("a", "b")
        for end in (b"first00", b"inner00", b"inner01")
    ]
    texts = ["", " ", "1", "00", "00 ", "\n", "é", "x" * 16, "x" * 17]
    assert len({text_key(form, text) for form in forms for text in texts}) == len(forms) * len(texts)
