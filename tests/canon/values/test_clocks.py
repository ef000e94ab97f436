import pytest

from canon.values.clocks import clock_at


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("2030-09-05T14:07:31.123+02:00[Europe/Berlin]", "instant"),
        ("Fri, 06 Sep 2030 10:00:00 +0200", "instant"),
        ("Thu Sep  5 14:07:31 CEST 2030", "instant"),
        ("Saturday, March 9, 2030 at 06:00:31 PM PDT", "instant"),
        ("Donnerstag, der 5. September 2030, 14.07 Uhr", "instant"),
        ("jeudi 5 septembre 2030 à 14h07", "instant"),
        ("2030年9月5日 星期四 下午2点07分", "instant"),
        ("二〇三〇年九月五日下午两点", "instant"),
        ("令和12年9月5日 午後2時7分", "instant"),
        ("2030년 9월 5일 오후 2시 7분", "instant"),
        ("1914847651", "instant"),
        ("1914847651123", "instant"),
        ("20300905T140731Z", "instant"),
        ("5 September 2030", "date"),
        ("05.09.2030", "date"),
        ("2030-W36", "date"),
        ("Q3 2030", "date"),
        ("Thursday", "date"),
        ("R12.9.5", "date"),
        ("9:00-17:00", "range"),
        ("Mon-Fri 9:00", "range"),
    ],
)
def test_the_whole_text_is_one_value(text: str, precision: str):
    assert clock_at(text, 0, len(text)) == (len(text), precision)


@pytest.mark.parametrize(
    "text", ["do not", "so", "may I", "10.3.2", "12", "16:9", "99:99", "2030-13-45", "version 3", ""]
)
def test_other_texts_hold_none_at_their_beginning(text: str):
    assert clock_at(text, 0, len(text)) is None


def test_it_ends_before_the_first_word_that_belongs_to_no_time():
    text = "10:31, Ana is late"
    assert clock_at(text, 0, len(text)) == (5, "instant")
