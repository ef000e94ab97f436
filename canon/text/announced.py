"""Text that a line hands over: `The text is:` and its like, and examples and forms."""

import re
from collections.abc import Sequence

from canon.text.guard import Guard

# A noun for a text of someone else's, in the line that ends in a colon in front of it.
_TEXT = re.compile(
    r"\b(?:text|document|article|letter|e-?mail|message|passage|transcript|contract|agreement|story|poem|excerpt"
    r"|paragraph|sentences?|quote|quotation|review|essay|report|recipe|lyrics|source|snippet|code|file|content"
    r"|dokument|artikel|brief|nachricht|vertrag|bericht|textes?|absatz|inhalt|datei"
    r"|texte|lettre|courriel|contrat|extrait|fichier|contenu"
    r"|texto|documento|carta|correo|mensaje|contrato|archivo|contenido|testo|lettera|messaggio|contratto)"
    r"(?:\s+so far)?"
    r"(?:\s+(?:is|are|was|were|said|wrote|reads|says|begins|starts|follows|below|lautet|war|ist|folgt|est|suit|es|dice"
    r"|sigue|è|here"
    r"|to \w+|(?:as )?follows|is (?:as follows|below|this|the following|here)))?\s*[:：]\s*$"
    r"|(?:文本|文章|原文|正文|内容|合同|邮件|文档|テキスト|文書|原稿|契約書|メール|本文)(?:如下|は次の通り|は以下の通り)?(?:です)?[:：]\s*$",
    re.IGNORECASE,
)
# What a line shows as a pattern: only what directly follows belongs to it.
_SHOWN = re.compile(
    r"\b(?:examples?|for instance|e\.g\.|samples?|form|format|schema|template|looks? like(?: this)?|like this"
    r"|as follows|output|reply|answer with|beispiel(?:e)?|zum beispiel|formato?|exemples?|par exemple|ejemplos?"
    r"|por ejemplo|esempio)\s*[:：]\s*$"
    r"|(?:例如|例子|示例|格式|如下|例|形式)(?:如下)?[:：]\s*$",
    re.IGNORECASE,
)
# A line that may ask for an output in the form of what follows it.
_ASKED = re.compile(
    r"\b(?:repl(?:y|ies)|respon[ds]\w*|answer|return|output|produce|emit|write|generate|format\w*|form|schema|template"
    r"|examples?|samples?|shape|structure|exactly|follow\w*|like|antwort\w*|ausgabe|beispiel\w*|form|gib|répon\w+|sortie"
    r"|exemples?|respond\w+|respuesta|salida|ejemplos?|formato|esempio|rispond\w+)\b[^.。]*[:：]?\s*$"
    r"|(?:格式|例|示例|输出|返回|回答|出力|形式|回答)[^.。]*[:：]?\s*$",
    re.IGNORECASE,
)
_COLONS = (":", "：")


def mark_announced(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """Marks what a line announces: a text up to the end, or up to the end of its own fence, tag or quote; an example
    up to the next blank line."""
    at = 0
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if guards[at - 1] or not line.endswith(_COLONS):
            continue
        line = line[-_LONGEST:]
        if _TEXT.search(line):
            at = _mark_text(lines, guards, at)
        elif _SHOWN.search(line):
            at = _mark_paragraph(lines, guards, at)


_LONGEST = 120  # characters at a line's end that an announcement is sought in


def _mark_text(lines: Sequence[str], guards: list[Guard | None], at: int) -> int:
    start = at
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at < len(lines) and guards[at] in ("fence", "tagged", "markup", "quote"):
        return at  # it is delimited, and guarded already
    guards[start:] = [_over(guard, "content") for guard in guards[start:]]
    return len(lines)


def _mark_paragraph(lines: Sequence[str], guards: list[Guard | None], at: int) -> int:
    while at < len(lines) and lines[at].strip():
        guards[at] = _over(guards[at], "example")
        at += 1
    return at


def _over(guard: Guard | None, announced: Guard) -> Guard:
    return announced if guard in (None, "code", "indent") else guard


def may_ask_for_form(line: str) -> bool:
    """Whether what comes behind this line may be a form or an example of what the model is to write."""
    return _ASKED.search(line[-_LONGEST:]) is not None


_REFERRED = re.compile(
    r"\b(?:above|preceding|previous|shown|given|such|oben|obige\w*|ci-dessus|arriba|anterior|sopra)\b|上記|上述|以上|上面",
    re.IGNORECASE,
)


def may_refer_to_form(text: str) -> bool:
    """Whether the beginning of a text may speak of what stands before it as a form to follow."""
    return _REFERRED.search(text[:_REFERENCE]) is not None


_REFERENCE = 300  # characters
