"""The fewest tokens that a text can have, told from its bytes alone."""

from typing import Any

from tokenizers import AddedToken

_KEEPS_ALL = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")  # behaviours of a split
# NFC never makes less than a third of a text's bytes (the signs for kelvin and the grave accent reach that).
_NFC_SHRINKS = 3
_IN_NO_TEXT = (0xC0, 0xC1, *range(0xF5, 0x100))  # bytes that UTF-8 never has


class FewestTokens:
    """Of one tokenizer. Where every byte of a text is in some token, the longest token bounds how few there are.

    That holds for byte-level BPE without a normalizer, or with NFC. Of others nothing is known, and 0 is the answer.
    """

    def __init__(self, whole: dict[str, Any], added: dict[int, AddedToken]) -> None:
        """`whole`: tokenizer.json. `added`: its added tokens, and those of other files."""
        self._dropped = b""  # bytes that the vocabulary lacks: no token has them
        self._most_bytes = 0  # of a text, in one token; 0: not known
        normalizer = whole.get("normalizer")
        if not _keeps_bytes(whole) or any(token.lstrip or token.rstrip for token in added.values()):
            return
        vocabulary = whole["model"]["vocab"]
        signs = _signs()
        self._dropped = bytes(
            byte for byte in range(256) if byte not in _IN_NO_TEXT and signs[byte] not in vocabulary
        )
        words = max(map(len, vocabulary))  # a character of theirs stands for a byte
        longest = max([words, *(len(token.content.encode()) for token in added.values())])
        if normalizer is None:
            self._most_bytes = longest
        elif normalizer.get("type") == "NFC" and not self._dropped:
            self._most_bytes = longest * _NFC_SHRINKS

    def of(self, text: str) -> int:
        """Tokens that `text` has at least."""
        if not self._most_bytes:
            return 0
        written = text.encode("utf-8", "surrogatepass").translate(None, self._dropped)
        return -(-len(written) // self._most_bytes)


def _keeps_bytes(whole: dict[str, Any]) -> bool:
    model, steps = whole["model"], whole.get("pre_tokenizer") or {}
    steps = steps["pretokenizers"] if steps.get("type") == "Sequence" else [steps]
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    return (
        model.get("type") == "BPE"
        and not affixes
        and any(step.get("type") == "ByteLevel" for step in steps)
        and all(
            step.get("type") in ("ByteLevel", "Digits")
            or (step.get("type") == "Split" and step.get("behavior") in _KEEPS_ALL)
            for step in steps
        )
    )


def _signs() -> list[str]:
    """The character that stands for each byte in byte-level BPE: itself where it can be printed, else one past 255."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printed else chr(next(others)) for byte in range(256)]
