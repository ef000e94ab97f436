"""Lines that are somebody's text, an example, a dialogue or a form, where no guard of the text says so.

A line such as `It is 10:11 now.` states the moment in a prompt's own words, and is content in a story, in an example
or below `Translate the following.` In doubt it is content: a value that stays is reported, one that leaves a text harms
it.
"""

import re
from collections.abc import Sequence

from canon.values.headings import Heading
from canon.values.items import item_of, says_present
from canon.values.words import word_set

_LONGEST = 240  # characters of a line that announces something
# What is done with a text: behind such a line stands the text, up to the end.
_FOLLOWS = (
    r"(?:following|below|folgende\w*|unten|suivante?s?|ci-dessous|siguientes?|abajo|seguente|seguinte|следующ\w+"
    r"|aşağıdaki)"
)
_TEXT = (
    r"(?:texts?|documents?|articles?|letters?|e-?mails?|mails?|messages?|passages?|transcripts?|contracts?|story|logs?"
    r"|reports?|threads?|notes|reviews?|sentences?|paragraphs?|snippets?|conversations?|dialogues?|code|essay|poem)"
)
_OF_TEXTS = (
    r"(?:translate|proofread|summari[sz]e|paraphrase|rewrite|rephrase|anonymi[sz]e|übersetze\w*|korrigiere\w*|fasse"
    r"|traduis\w*|corrige\w*|résume\w*|traduce\w*|traduzca|resume|resuma|traduci|correggi|riassumi|traduza|corrija"
    r"|переведи\w*|исправь\w*|çevir\w*)"
)
_OF_ANYTHING = (
    r"(?:correct|edit|polish|analy[sz]e|review|annotate|continue|complete|classify|extract|answer questions|explain"
    r"|use|read)"
)
_TASK = re.compile(
    r"(?:[-*•]\s+|\d+[.)]\s+)?(?:please\s+|now\s+|your task is to\s+|you\s+)?(?:"
    rf"{_OF_TEXTS}\b[^.。\n]*\b{_FOLLOWS}\b[^.。\n]*[.:：]?"
    rf"|{_OF_ANYTHING}\b(?=[^.。\n]*\b{_TEXT}\b)[^.。\n]*\b{_FOLLOWS}\b[^.。\n]*[.:：]?"
    rf"|{_OF_TEXTS}(?:\s+(?:this|these|the)\s[^.。\n]{{1,40}})?[:：]"
    rf"|{_OF_ANYTHING}\s+(?:this|these|the)\s(?:[^.。\n]{{1,40}}\s)?{_TEXT}[:：])\s*$"
    r"|(?:请|請)?(?:翻译|翻譯|校对|总结|改写|分析)(?:以下|下面|下列)[^。\n]*[。：:]?\s*$"
    r"|(?:以下|次)の.{0,20}を?(?:翻訳|要約|校正)[^。\n]*[。：:]?\s*$|다음.{0,20}(?:번역|요약|교정)[^\n]*$",
    re.IGNORECASE,
)
# What the model is to write, to the letter, or what is no more than a sample: the paragraph below shows it.
_SHOWN = re.compile(
    r"\b(?:like this|as follows|exactly(?: this| so| one of)?|verbatim|word for word"
    r"|(?:must|should) (?:have|contain|look|read)\b[^.。!?\n]*"
    r"|(?:say|reply|respond|answer|output|print|write|send)(?: only| with)?(?: the following| this| these| exactly)\b"
    r"[^.。!?\n]*|fill (?:in|out|this)\b[^.。!?\n]*\.?|for (?:unit )?(?:tests|testing|demos)\b[^.。!?\n]*\.?"
    r"|(?:tests?|demo|dummy|mock|sample) (?:data|account|session|user|vectors|values|cases)\b[^.。!?\n]*"
    r"|genau so|wie folgt|wörtlich|comme suit|exactement|como sigue|exactamente|come segue|esattamente|exatamente)"
    r"[:：]?\s*$"
    r"|(?:如下|例如|のように|다음과 같이)[^。\n]*[:：]?\s*$",
    re.IGNORECASE,
)
_FICTION = re.compile(
    r"\{\{(?:char|user)\}\}|\brole-?play|\bnarrat(?:or|e|ion)\b|\bin[- ]character\b|\btext adventure\b"
    r"|\bgame master\b|\bdungeon\b|\bstorytell|\b(?:the|this) (?:story|scene|plot|novel)\b"
    r"|(?:^|\n)(?:scenario|setting|scene|plot)[ \t]?:|\brollenspiel|\berzähler|\bjeu de rôle|\bnarrateur"
    r"|\bjuego de rol|\bnarrador|\bgioco di ruolo|\bролев|\bрассказчик"
    r"|角色扮演|小说|剧情|ロールプレイ|物語|小説|롤플레이|역할극",
    re.IGNORECASE,
)
_ASKING = word_set(
    "user human customer client caller q question input query nutzer kunde frage usuario pregunta utente "
    "domanda utilisateur 用户 问 问题 输入 ユーザー 質問 入力 사용자 질문 입력 пользователь вопрос kullanıcı"
)
_ANSWERING = word_set(
    "assistant ai bot agent a answer output response assistent antwort asistente respuesta risposta "
    "réponse 助手 答 回答 输出 アシスタント 出力 답변 출력 ассистент ответ asistan"
)
_SPEAKER = re.compile(
    r"[ \t]*[*_<\[]*([^\W\d_]{1,12})(?:[ \t]?#?\d{1,3})?[*_>\]]*[ \t]?[:：][*_]*[ \t]*(.*)$"
)
_ARROW = re.compile(r"[ \t]*(?:=>|->|→|⇒)")
_RULE = re.compile(r"[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,})[ \t]*$")
_DELIMITER = re.compile(r"[ \t]*(?:<|`{3}|~{3}|\"{3}|'{3})")
_TITLE = re.compile(r"[^\W\d_][^\n.!?:：;。]{2,50}$")
_WORD = re.compile(r"[^\W\d_]+")
_DOCUMENTS = word_set(
    """
contract agreement letter memo minutes notes diary recipe invoice receipt itinerary timetable agenda plan form quiz
journal transcript log logs dialogue dialog conversation template ticket report story scene chapter schedule record
email vectors vertrag brief protokoll tagebuch rezept rechnung bericht fahrplan dialog contrat lettre recette facture
contrato carta receta factura contratto lettera ricetta fattura
"""
)


def is_fiction(text: str) -> bool:
    """Whether the text sets a scene, whose clocks and places are the scene's."""
    return _FICTION.search(text) is not None


def mark_handed_over(
    strings: Sequence[str], blank: Sequence[bool], headings: Sequence[Heading | None], shown: list[bool]
) -> None:
    """Marks in `shown` what is no word of the prompt's own. Takes time linear in the lines."""
    paragraphs = paragraphs_of(blank)
    for number, (first, stop) in enumerate(paragraphs):
        if _is_dialogue(strings[first:stop]):
            shown[first:stop] = [True] * (stop - first)
        if (reply := _SPEAKER.match(strings[stop - 1][:_LONGEST])) and not reply[2] and _speaks(reply[1]):
            _mark_next(paragraphs, number, shown)
        for at in range(first, stop):
            if _ARROW.match(strings[at]):
                shown[max(first, at - 1) : at + 1] = [True] * (at + 1 - max(first, at - 1))
            elif len(strings[at]) <= _LONGEST and _SHOWN.search(strings[at]) and not _is_item(strings[at]):
                shown[at + 1 : stop] = [True] * (stop - at - 1)
                if at + 1 == stop:
                    _mark_next(paragraphs, number, shown)
    start = next((at for at in range(len(strings)) if _hands_over(strings, blank, at)), None)
    if start is not None:
        _mark_document(strings, blank, headings, shown, start)


def paragraphs_of(blank: Sequence[bool]) -> list[tuple[int, int]]:
    """First line of each paragraph and the line behind its last."""
    found, first = [], 0
    for at in range(len(blank) + 1):
        if at == len(blank) or blank[at]:
            if at > first:
                found.append((first, at))
            first = at + 1
    return found


def _mark_next(paragraphs: Sequence[tuple[int, int]], number: int, shown: list[bool]) -> None:
    if number + 1 < len(paragraphs):
        first, stop = paragraphs[number + 1]
        shown[first:stop] = [True] * (stop - first)


def _is_item(string: str) -> bool:
    item = item_of(string)
    return item is not None and item.whole


def _speaks(word: str) -> bool:
    return word.lower() in _ASKING or word.lower() in _ANSWERING


def _is_dialogue(lines: Sequence[str]) -> bool:
    """Somebody asks, somebody answers, and one of them says more than a word."""
    asks = answers = talks = False
    for line in lines:
        if found := _SPEAKER.match(line[:_LONGEST]):
            word = found[1].lower()
            asks, answers = asks or word in _ASKING, answers or word in _ANSWERING
            talks = talks or (_speaks(word) and (not found[2] or " " in found[2].strip()))
    return asks and answers and talks


def _hands_over(strings: Sequence[str], blank: Sequence[bool], at: int) -> bool:
    """Whether a text begins below this line: a task says so, or it is the title of a document."""
    string = strings[at].strip()
    if not string or len(string) > _LONGEST:
        return False
    if _TASK.match(string):
        return True
    if (at and not blank[at - 1]) or not string[0].isupper() or _TITLE.match(string.rstrip(",")) is None:
        return False
    words = [word.lower() for word in _WORD.findall(string)]
    return len(words) <= 4 and not _DOCUMENTS.isdisjoint((words[0], words[-1]))


def _mark_document(
    strings: Sequence[str],
    blank: Sequence[bool],
    headings: Sequence[Heading | None],
    shown: list[bool],
    start: int,
) -> None:
    """To the next title or rule, or to the end; a last paragraph that says what is present is the prompt's own, if
    there is a text before it."""
    stop = start + 1
    while (
        stop < len(strings)
        and not ((heading := headings[stop]) and heading.marked)
        and not _RULE.match(strings[stop])
    ):
        stop += 1
    inside = [(first, end) for first, end in paragraphs_of(blank[start + 1 : stop])]
    if stop == len(strings) and len(inside) > 1:
        first, end = inside[-1]
        items = [item_of(string) for string in strings[start + 1 + first : start + 1 + end]]
        if all(item and item.whole and says_present(item.words) for item in items):
            stop = start + 1 + first
    shown[start + 1 : stop] = [True] * (stop - start - 1)
