"""Counters, budgets and usage: `Iteration 7 of 50`, `Token usage: 1200/8000`, `Noch 3 Versuche übrig`.

Such a line is a bag of words, as people put them in any order: it is a counter if every word is one that counters are
written with, a number is among them, and a word says that it is the state of something (left, used) or that something
is being counted (iteration) up to a limit.
"""

import re

from canon.values.value import Value
from canon.values.words import word_set

_COUNTED = word_set(
    """
message iteration step turn attempt round retry try cycle pass loop schritt runde versuch durchgang
étape essai tour itération paso intento turno iteración iterazione tentativo passo tentativa iteração
iteratie poging stap итерация шаг попытка 迭代 轮 輪 轮次 步骤 步驟 步 尝试 嘗試 ステップ ターン 試行
反復 반복 단계 시도
"""
)
_COUNTED_MANY = word_set("iterations steps turns attempts rounds retries cycles messages")
_STATES = word_set(
    """
reste restano quedan queda rimangono left remaining used spent consumed usage progress budget remain
elapsed übrig verbleibend verbleibende verbleibendes verbraucht genutzt verbrauch restant restants
restante restantes utilisé utilisés utilisée utilisées usados usado usadas rimanenti usati resterend
gebruikt осталось использовано 剩余 剩餘 已用 已使用 使用量 用量 预算 預算 残り 使用済み 残 予算 남은
사용 예산
"""
)
_UNITS = word_set(
    """
token tasks tokens iterations steps turns attempts rounds retries tries cycles messages message calls
call requests request credits credit context window budget cost quota limit max maximum total overall
seconds second minutes minute hours percent chars characters usd eur dollars cents session conversation
so far current currently count number out on time tours of from and the is are have has you your you've
in this for been now at about approximately ~ tool fenster kontext kontextfenster von noch schritte
runden versuche budget du sie hast haben aktuelle aktueller nr sur de du il reste encore jetons étapes
contexte tours essais utilisation quedan queda tokens pasos intentos uso contexto de rimangono passi di
restam passos zijn nog van из токенов шагов попыток 上下文 窗口 令牌 个 個 次 第 共 的 已 还 還 剩 数 數
量 コンテキスト ウィンドウ トークン 回 目 数 の 中 回目 개 번 토큰 컨텍스트 의
"""
)
_WORD = re.compile(
    r"[^\W\d_]+(?:['’][^\W\d_]+)?|(?P<number>\d[\d,._]*(?:[kKmM](?!\w))?)|(?P<mark>[\s/:：=#%$€£.,;()\[\]*_~–，；、。（）-])"
)
_UNSPACED = re.compile(
    "|".join(
        re.escape(word)
        for word in sorted((*_COUNTED, *_STATES, *_UNITS), key=len, reverse=True)
        if "\u2e80" <= word[0] <= "\ud7ff"
    )
)
_KNOWN = _COUNTED | _COUNTED_MANY | _STATES | _UNITS
_LONGEST = 160


def counter_words() -> frozenset[str]:
    """Words that a counter can be written with."""
    return _KNOWN


def starts_unspaced_counter(text: str) -> bool:
    return _UNSPACED.match(text) is not None


def counter_at(text: str, start: int, stop: int) -> Value | None:
    """The counter that goes from `start` to `stop`, whole sentences of it; None: something else is there too."""
    if stop - start > _LONGEST:
        return None
    words: list[str] = []
    numbers: list[str] = []
    at = start
    while at < stop:
        found = _UNSPACED.match(text, at, stop) or _WORD.match(text, at, stop)
        if found is None:
            return None
        if found.re is _WORD and found["number"]:
            numbers.append(found[0])
            words.append("0")
        elif found.re is _UNSPACED or not found["mark"]:
            word = found[0].lower().replace("’", "'")
            if word not in _KNOWN:
                return None
            words.append(word)
        elif found[0] in "/#:：%":
            words.append(found[0])
        at = found.end()
    sure = _counts(words)
    return Value("counter", stop, sure) if numbers and (sure or _numbered(words)) else None


def _counts(words: list[str]) -> bool:
    """Is it the state of something, or one of a number of turns?"""
    several = words.count("0") > 1
    if not _STATES.isdisjoint(words):
        return several or "current" in words or any(word in _STATES and word != "budget" for word in words)
    if "so far" in " ".join(words):
        return True
    for at, word in enumerate(words):
        if (
            (word in _COUNTED or word in _COUNTED_MANY)
            and "0" in words[at + 1 : at + 4]
            and (several or "current" in words[:at])
        ):
            return True
    if words[:2] == ["this", "is"] and words[-1] == "0":
        return not _COUNTED.isdisjoint(words)
    return "第" in words[:2] and "0" in words[:3] and not _COUNTED.isdisjoint(words)


def _numbered(words: list[str]) -> bool:
    """`Iteration: 7`, which may also be a title."""
    if words[0] in ("conversation", "session", "request"):
        words = words[1:]  # Conversation turn #4
    return len(words) in range(2, 5) and words[0] in _COUNTED and not {":", "：", "#"}.isdisjoint(words)
