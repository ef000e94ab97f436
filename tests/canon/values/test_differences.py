import pytest

from canon.values import classify


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Current time: 10:31:07", "Current time: 10:33:40", "clock"),
        (
            "a\nRemember that it is 2030-03-04 10:31 now.\nb",
            "a\nRemember that it is 2030-03-04 10:32 now.\nb",
            "clock",
        ),
        ("signed on 2024-01-02.", "signed on 2024-01-03.", "date"),
        ("signed on 5 March 2029.", "signed on 6 April 2029.", "date"),
        ("今天是2030年9月5日。", "今天是2030年9月6日。", "date"),
        ("- note A (3h ago)", "- note A (4h ago)", "relative time"),
        ("- 周报 (3天前)", "- 周报 (4天前)", "relative time"),
        (
            "see 550e8400-e29b-41d4-a716-446655440000 for it",
            "see 0f8fad5b-d9cb-469f-a165-70867728950e for it",
            "uuid",
        ),
        ("Iteration 7 of 50", "Iteration 8 of 50", "counter"),
        ("open /w/a/b.py first", "open /w/c/b.py first", "path"),
        ("open /tmp/x1/b.py first", "open /tmp/y2/b.py first", "temporary path"),
        ("go to https://a1.example/x now", "go to https://b2.example/x now", "url"),
        ("ask 10.0.0.1 or me", "ask 10.0.0.2 or me", "address"),
        ("write to ana@example.com", "write to bo@example.com", "mail"),
        ("User name: Ana", "User name: Bo", "user"),
        ("build V1StGXR8_Z5jdHi6B-myT", "build Uakgb_J5m9g-0JDMbcJqL", "id"),
        ("there are 12 left of them", "there are 13 left of them", "number"),
    ],
)
def test_a_difference_is_called_by_what_differs(before: str, after: str, kind: str):
    assert classify(before, after) == kind
    assert classify(after, before) == kind


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("same", "same"),
        ("You are Acme.", "You are Bolt."),
        ("at 10:31\nred\n10:32", "at 10:33\nblue\n10:34"),
        ("", "Current time: 10:31:07\n"),
    ],
)
def test_other_differences_have_no_name(before: str, after: str):
    assert classify(before, after) is None
