"""Lines that head what follows: a title in Markdown, or a few words with a colon."""

import re
from typing import NamedTuple

from canon.values.words import word_set

_TITLE = re.compile(r"[ \t]{0,3}(#{1,6})[ \t]+([^\n]{1,80}?)[ \t#]*$")
_BOLD = re.compile(r"[ \t]*(?:\*\*|__)([^*_\n]{1,80})(?:\*\*|__)[ \t]*[:：]?[ \t]*$")
_SIGN = re.compile(r"[ \t]*[■◆●▼▶◇□▪][ \t]*([^\n:：]{1,60}?)[ \t]*$")
_COLON = re.compile(r"[ \t]*(?:[-*•][ \t]+)?([^\n:：<>{}\"'`]{1,120})[:：][ \t]*$")
_WORD = re.compile(r"[^\W\d_]+")
_STATE = word_set(
    """
environment env context session runtime system information info status state metadata current user
details umgebung kontext sitzung status contexte environnement entorno contexto sesión контекст
окружение 环境 上下文 会话 環境 コンテキスト セッション 환경
"""
)
_CONTENT = word_set(
    """
example examples sample samples transcript transcripts log logs changelog template templates schedule
calendar journal history faq record records email emails letter letters ticket tickets contract scenario
story scene setting plot beispiel beispiele vorlage verlauf protokoll exemple exemples ejemplo ejemplos
esempio esempi exemplo exemplos
"""
)
_TURNS = word_set(
    "input inputs output outputs question questions answer answers response query passage dialogue text"
)
_CONTENT_UNSPACED = ("示例", "例子", "例", "样本", "記録", "记录", "예시", "기록")
_PERSONAL = word_set(
    """
environment env session runtime user umgebung sitzung environnement entorno sesión окружение 环境 会话
環境 환경
"""
)


class Heading(NamedTuple):
    """A line that heads others."""

    title: str
    level: int  # 1 to 6 of a title in Markdown, 7 of other lines
    marked: bool  # it is a title in Markdown or bold
    state: bool  # it announces state of the moment: `Environment`
    content: bool  # it announces an example, a record, a text: `Example 2`
    personal: bool  # of the session or the user, whatever the keys below it


def title_words() -> frozenset[str]:
    """Words of titles that announce state."""
    return _STATE | {"repository", "gitstatus"}


def heading_of(line: str) -> Heading | None:
    bare = line.strip()
    if not bare or len(line) > 160 or not (bare[0] in "#*_■◆●▼▶◇□▪" or bare[-1] in ":：*_"):
        return None
    if found := _TITLE.match(line):
        title, level, marked = found[2].rstrip(":："), len(found[1]), True
    elif found := _BOLD.match(line):
        title, level, marked = found[1].rstrip(":："), 6, True
    elif found := _SIGN.match(line):
        title, level, marked = found[1], 6, True
    elif found := _COLON.match(line):
        title, level, marked = found[1], 7, False
    else:
        return None
    words = [word.lower() for word in _WORD.findall(title)]
    state = bool(words) and all(word in _STATE or word in ("the", "about", "of", "your") for word in words)
    turn = bool(words) and _TURNS.issuperset(words)
    content = turn or not _CONTENT.isdisjoint(words) or any(word in title for word in _CONTENT_UNSPACED)
    return Heading(title, level, marked, state, content, state and not _PERSONAL.isdisjoint(words))
