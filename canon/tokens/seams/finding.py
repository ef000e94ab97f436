"""Which kinds of cuts one tokenizer allows: shown from its description, then tried on texts."""

import re
from functools import cached_property

from tokenizers import AddedToken

from canon.tokens.seams.border import Border
from canon.tokens.seams.candidates import SEAMS, Seam, behind_any
from canon.tokens.seams.normalizing import normalized_border
from canon.tokens.seams.pre_tokenizing import Effect, at_border
from canon.tokens.tokenizer_set import TokenizerSet, encode


def find_seams(tokenizers: TokenizerSet) -> tuple[Seam, ...]:
    """The kinds of cuts after which the ids of the parts are the ids of the whole.

    The right part is encoded with `tokenizers.continuing`, which puts nothing before a text.
    """
    if not tokenizers.deterministic:
        return ()
    if tokenizers.prepends and any(token.normalized for token in tokenizers.added.values()):
        return ()  # `barring_words` would have to be looked for in the normalized text
    judge = _Judge(tokenizers)
    allowed = tuple(seam for seam in SEAMS if judge.allows(seam))
    return allowed if all(_holds(tokenizers, seam) for seam in allowed) else ()


def barring_words(tokenizers: TokenizerSet) -> list[str]:
    """Words in whose company a text is not cut.

    A normalizer that puts something before a text puts it before each part between added tokens too, while
    `tokenizers.continuing` leaves it out everywhere.
    """
    return [token.content for token in tokenizers.added.values()] if tokenizers.prepends else []


class _Judge:
    def __init__(self, tokenizers: TokenizerSet) -> None:
        self._description = tokenizers.continuing_description
        self._added = tuple(tokenizers.added.values())
        self._tokenizer = tokenizers.continuing

    def allows(self, seam: Seam) -> bool:
        border = Border(frozenset(seam.left), seam.right)
        normalized = normalized_border(self._description.get("normalizer"), seam)
        if normalized is None or self._meets_added_token(border, normalized):
            return False
        effect, at_model = at_border(self._description.get("pre_tokenizer"), normalized)
        return effect is Effect.SPLITS or (effect is Effect.KEEPS_AWAY and self._model_keeps_apart(at_model))

    def _normalize(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _meets_added_token(self, border: Border, normalized: Border) -> bool:
        """Can the match of an added token span the cut, or hang on what stands on its other side?"""
        return any(
            _spans(token.content, border)
            or _spans(token.content, normalized)
            or (token.normalized and _spans(self._normalize(token.content), normalized))
            or _looks_across(token, border)
            for token in self._added
        )

    def _model_keeps_apart(self, border: Border) -> bool:
        """For a model that gets both sides at once.

        BPE joins neighbours only into words of its vocabulary, so where no word has both sides, what it joins on one
        side does not hang on the other. Unigram compares sums over the whole text, whose rounding does.
        """
        model = self._description["model"]
        if (
            model["type"] != "BPE"
            or model.get("continuing_subword_prefix")
            or model.get("end_of_word_suffix")
        ):
            return False
        # What the vocabulary lacks on the left becomes the unknown token, or bytes such as <0x41>.
        left = {*border.left, ">", (model.get("unk_token") or ">")[-1]}
        known = self._tokenizer.model.token_to_id(border.right) is not None
        return known and re.search(behind_any(left, border.right), self._words) is None

    @cached_property
    def _words(self) -> str:
        """The model's whole vocabulary, with a character between two words that begins no right side."""
        return "\0".join(self._tokenizer.get_vocab(with_added_tokens=False))


def _spans(content: str, border: Border) -> bool:
    at = content.find(border.right, 1)
    while at > 0:
        if content[at - 1] in border.left:
            return True
        at = content.find(border.right, at + 1)
    return False


def _looks_across(token: AddedToken, border: Border) -> bool:
    if not token.content:
        return False
    takes_blank = token.rstrip and border.right.isspace() and token.content[-1] in border.left
    return takes_blank or (token.single_word and token.content[0] == border.right)


# Put on both sides of every kind of cut when a tokenizer is loaded; a difference means that its texts are not cut.
_LEFT = ("", "Some words, then ", "x\n\n  ", "12 \u4e2d\u6587 \u00e9e\u0301 ")
_RIGHT = ("", "nd more.\n\n", " 3 \U0001f600", "'s \u65e5\u672c\u8a9e\n")


def _holds(tokenizers: TokenizerSet, seam: Seam) -> bool:
    lefts, behinds = _some(seam.left), _some(seam.behind)
    for before, left, behind, after in zip(_LEFT, lefts, behinds, _RIGHT, strict=True):
        head, tail = before + left, seam.right + behind + after
        for first in (tokenizers.plain, tokenizers.inner):
            apart = [*encode(first, head), *encode(tokenizers.continuing, tail)]
            if encode(first, head + tail).tolist() != apart:
                return False
    return True


def _some(characters: str) -> list[str]:
    """Four of `characters`."""
    return [characters[len(characters) * i // 4] for i in range(4)]
