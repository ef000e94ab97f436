"""Lines about the user: name, mail address, locale, language, place, time zone."""

from canon.values.label_words import USER, ZONE
from canon.values.labels import Label
from canon.values.shapes import HANDLE, LOCALE, MAIL, NAME
from canon.values.shapes import ZONE as ZONE_SHAPE
from canon.values.value import Value, is_placeholder
from canon.values.words import word_set

_LOCALES = word_set("locale lang language sprache langue idioma 语言 語言 言語 언어 userlocale")
_MAILS = word_set("email mail useremail")
_LONGEST = 60


def user_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    sure = label.strong(USER) and label.joined
    whose = bool((label.mark | label.name) & USER)
    if found := MAIL.match(text, start, stop):
        return Value("mail", found.end(), sure)
    if not _LOCALES.isdisjoint(label.words) and (found := LOCALE.match(text, start, stop)):
        return Value("locale" if whose else "name", found.end(), sure)
    end = _name_end(text, start, stop, label.colon)
    return Value("user" if whose else "name", end, sure) if end else None


def zone_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    found = ZONE_SHAPE.match(text, start, stop)
    return Value("time zone", found.end(), label.strong(ZONE)) if found else None


def _name_end(text: str, start: int, stop: int, colon: bool) -> int:
    """A name of up to four words that begin with capitals, or one word that is a handle; 0: none."""
    stop = min(stop, start + _LONGEST)
    found = NAME.match(text, start, stop)
    if found is None and colon:
        found = HANDLE.match(text, start, stop)
        if found and found.end() < stop and text[found.end()] not in ",;|)":
            return 0
    if found is None or is_placeholder(found[0]) or len(found[0].split()) > 4:
        return 0
    return found.end() - (found[0][-1] == "." and found.end() == stop)
