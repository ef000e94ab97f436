"""Key and value pairs inside a block of state: `name: Ana; tz: Europe/Oslo; screen: traces`."""

import json
import re

from canon.values.items import item_of
from canon.values.words import word_set

_PAIR = re.compile(r"[ \t]*(?:[-*•][ \t]+)?([^\W\d][\w .'/()-]{0,40}?)[ \t]*[:：=][ \t]*([^\n]{1,80})$")
_SPLIT = re.compile(r"[;|\n]|,(?=[ \t]*[\w ]{1,30}[:=])")
_ORDERS = word_set(
    """
rule rules tone style instruction instructions policy approval format output goal task tasks note
important must never always do don't warning hint guideline guidelines constraint constraints role
persona answer reply respond permission permissions allowed forbidden limit mode language sprache
"""
)
_SENTENCE = re.compile(
    r"[.!?](?:[ \t]|$)|\b(?:must|never|always|should|do not|don't|please|use|only|avoid)\b", re.IGNORECASE
)
# Facts of a machine that say nothing alone, and go along with the other state of their block.
_MACHINE = word_set(
    """
platform os shell version arch architecture kernel is directory a git repo repository screen page view
route theme plan tier browser device model
"""
)


def is_pair(line: str) -> bool:
    """Whether the line is a key with a short value that gives no order."""
    found = _PAIR.match(line)
    if found is None or _SENTENCE.search(found[2]):
        return False
    return _ORDERS.isdisjoint(re.findall(r"[^\W\d_]+(?:'t)?", found[1].lower()))


def pairs_hold_value(text: str) -> str:
    """The kind of the first value in a text that is nothing but pairs; empty: it is not, or holds none."""
    if text.lstrip().startswith("{"):
        return "state" if _is_json_object(text) else ""
    pieces = [piece for piece in _SPLIT.split(text) if piece.strip()]
    if not pieces or len(pieces) > 40:
        return ""
    kind = ""
    for piece in pieces:
        item = item_of(piece.strip())
        if item is not None and item.whole:
            kind = kind or item.kind
        elif not is_pair(piece):
            return ""
    return kind


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
