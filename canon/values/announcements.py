"""How lines announce somebody's text, an example, a scene, or the state of the moment, by language."""

import re

from canon.values.words import word_set

LONGEST = 240  # characters of a line that announces something
# What is done with a text: behind such a line stands the text, up to the end.
_FOLLOWS = (
    r"(?:following|below|folgende\w*|unten|suivante?s?|ci-dessous|siguientes?|abajo|abaixo|seguente|seguinte|следующ\w+"
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
TASK = re.compile(
    r"(?:^|[.!?。]\s+)(?:[-*•]\s+|\d+[.)]\s+)?(?:please\s+|now\s+|your task is to\s+|you\s+)?(?:"
    rf"{_OF_TEXTS}\b[^.。\n]*\b{_FOLLOWS}\b[^.。\n]*[.:：]?"
    rf"|{_OF_ANYTHING}\b(?=[^.。\n]*\b{_TEXT}\b)[^.。\n]*\b{_FOLLOWS}\b[^.。\n]*[.:：]?"
    rf"|{_OF_TEXTS}(?:\s+(?:this|these|the)\s[^.。\n]{{1,40}})?[:：]"
    rf"|{_OF_ANYTHING}\s+(?:this|these|the)\s(?:[^.。\n]{{1,40}}\s)?{_TEXT}[:：])\s*$"
    r"|aşağıdaki\s[^.\n]*\b(?:çevir|düzelt|özetle)\w*[.:]?\s*$|(?:ترجم|لخص|صحح)\s[^.\n]*[.:]?\s*$"
    r"|(?:请|請)?(?:翻译|翻譯|校对|总结|改写|分析)(?:以下|下面|下列)[^。\n]*[。：:]?\s*$"
    r"|(?:以下|次)の.{0,20}を?(?:翻訳|要約|校正)[^。\n]*[。：:]?\s*$|다음.{0,20}(?:번역|요약|교정)[^\n]*$",
    re.IGNORECASE,
)
# What the model is to write, to the letter, or what is no more than a sample: the paragraph below shows it.
SHOWN = re.compile(
    r"\b(?:like this|as follows|exactly(?: this| so| one of)?|verbatim|word for word"
    r"|(?:must|should) (?:have|contain|look|read)\b[^.。!?\n]*"
    r"|(?:say|reply|respond|answer|output|print|write|send)(?: only| with)?(?: the following| this| these| exactly)\b"
    r"[^.。!?\n]*|fill (?:in|out|this)\b[^.。!?\n]*\.?|for (?:unit )?(?:tests|testing|demos)\b[^.。!?\n]*\.?"
    r"|(?:tests?|demo|dummy|mock|sample) (?:data|account|session|user|vectors|values|cases)\b[^.。!?\n]*"
    r"|genau so|wie folgt|wörtlich|comme suit|exactement(?:\s\w+)?|como sigue|exactamente(?:\s\w+)?"
    r"|come segue|esattamente|exatamente)"
    r"\s*[:：]?\s*$"
    r"|(?:如下|例如|のように|다음과 같이)[^。\n]*[:：]?\s*$",
    re.IGNORECASE,
)
# What it is about is given below, or is no more than supposed.
GIVEN = re.compile(
    r"\b(?:below|here(?:['’]s| is| are)|the following|imagine|pretend|suppose|assume|unten|ci-dessous|abajo"
    r"|sotto|abaixo|ниже|stell dir vor|angenommen|imagine que|supón|supponi|suponha|представь|предположим)\b"
    r"|以下|下面|下記|次の|다음|假设|想象|仮に|가정",
    re.IGNORECASE,
)
# An order that means what stands right above it.
REFERS = re.compile(
    r"\b(?:(?:this|that|these|those) (?:branch|directory|folder|language|locale|time ?zone|zone|path|id|account|address"
    r"|name|session|repository|port|host|server|file)"
    r"|(?:use|leave|in|to|from|with|of|on|name|push|commit|edit|hide|reveal|share|mention) (?:it|them|there))\b"
    r"|\bdiese[mrsn]? (?:branch|zweig|ordner|verzeichnis|sprache|zeitzone|pfad|konto|adresse)\b"
    r"|\b(?:cette|ce) (?:branche|dossier|langue|fuseau)|\b(?:esta|este) (?:rama|carpeta|idioma|zona)",
    re.IGNORECASE,
)
PERSONA = re.compile(
    r"\byour name\b|\bdein name\b|\bdu hei(?:ß|ss)t\b|\btu t'appelles|\bte llamas\b|你的名字|あなたの名前",
    re.IGNORECASE,
)
# Words of a line below which values of the moment are to be expected.
OF_STATE = re.compile(
    r"\b(?:env|environment|context|info\w*|details?|sessions?|runtime|system|state|status|metadata|meta|current\w*|now|today"
    r"\w*|dates?|times?|clock|user|settings?|useful|facts?|background|notes?|important|remember|rules?|instructions?"
    r"|guidelines?|header|request|repository|git\w*|workspace|umgebung|kontext|sitzung|hinweise?|aktuell\w*|heute|datum|zeit"
    r"|uhrzeit|system\w*|nutzer|benutzer|regeln|anweisungen|contexte|environnement|actuel\w*|heure|règles|consignes"
    r"|utilisateur|contexto|entorno|actual\w*|información|fecha|hora|reglas|instrucciones|usuario|contesto|ambiente|attual\w*"
    r"|regole|istruzioni|utente|atual|regras|instruções|ambiente|контекст|окружение|информация|текущ\w+|сейчас|дата|время"
    r"|правила|bağlam|ortam|bilgi\w*|güncel|tarih|kurallar|الحالي\w*|معلومات|السياق)\b"
    r"|环境|上下文|信息|当前|现在|时间|日期|规则|环境|会话|用户|環境|コンテキスト|情報|現在|日時|ルール|規則|セッション|ユーザー"
    r"|환경|컨텍스트|정보|현재|규칙|사용자",
    re.IGNORECASE,
)
SALUTATION = re.compile(
    r"(?:dear|sehr geehrte[rs]?|liebe[rs]?|madame|monsieur|cher|chère|estimad[oa]|querid[oa]|gentile|egregio|car[oa]"
    r"|prezad[oa]|уважаем\w+)\b[^.!?\n]{0,60},$|(?:尊敬的|拝啓)",
    re.IGNORECASE,
)
FICTION = re.compile(
    r"\{\{(?:char|user)\}\}|\brole-?play|\bnarrat(?:or|e|ion)\b|\bin[- ]character\b|\btext adventure\b"
    r"|\bgame master\b|\bdungeon\b|\bstorytell|\b(?:the|this) (?:story|scene|plot|novel)\b"
    r"|(?:^|\n)(?:scenario|setting|scene|plot|история|(?:la )?historia|storia|l?'?histoire)\b"
    r"[^.:\n]{0,20}:|\brollenspiel|\berzähler|\bjeu de rôle|\bnarrateur"
    r"|\bjuego de rol|\bnarrador|\bgioco di ruolo|\bролев|\bрассказчик"
    r"|\bplay the (?:role|part)|\byou (?:are playing|play)\b|\bspiele? (?:die|eine) rolle|\bdu spielst\b|\btu joues\b"
    r"|\bjoue le rôle|\binterpreta (?:el papel|il ruolo)|\bиграешь роль"
    r"|扮演|小说|剧情|故事|なりきって|ロールプレイ|物語|小説|롤플레이|역할극",
    re.IGNORECASE,
)
ASKING = word_set(
    "user human customer client caller q question input query nutzer kunde frage usuario pregunta utente "
    "domanda utilisateur 用户 问 问题 输入 ユーザー 質問 入力 사용자 질문 입력 пользователь вопрос kullanıcı"
)
ANSWERING = word_set(
    "assistant ai bot agent a answer output response assistent antwort asistente respuesta risposta "
    "réponse 助手 答 回答 输出 アシスタント 出力 답변 출력 ассистент ответ asistan"
)
SPEAKER = re.compile(r"[ \t]*[*_<\[]*([^\W\d_]{1,12})(?:[ \t]?#?\d{1,3})?[*_>\]]*[ \t]?[:：][*_]*[ \t]*(.*)$")
ARROW = re.compile(r"[ \t]*(?:=>|->|→|⇒)")
RULE = re.compile(r"[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,})[ \t]*$")
_DELIMITER = re.compile(r"[ \t]*(?:<|`{3}|~{3}|\"{3}|'{3})")
TITLE = re.compile(r"[^\W\d_][^\n.!?:：;。]{1,50}$")
WORD = re.compile(r"[^\W\d_]+")
DOCUMENTS = word_set(
    """
contract agreement letter memo minutes notes diary recipe invoice receipt itinerary timetable agenda plan form quiz
journal transcript log logs dialogue dialog conversation template ticket report story scene chapter schedule record
email vectors rota roster table puzzle riddle
vertrag protokoll tagebuch rezept rechnung bericht fahrplan dialog contrat lettre recette facture
contrato carta receta factura contratto lettera ricetta fattura
"""
)


# A line that begins with one of these is no title.
ORDERING = word_set(
    """
you your i we be create make write follow check answer use read draft prepare build generate give keep help manage
maintain track update fill show produce answers summarize send please never always do don't no all each act sei du
sie tu vous eres usted sei
"""
)
OF = word_set("of for from with der des vom zur du de la della del da")
DOCUMENTS_UNSPACED = (
    "日记",
    "日記",
    "合同",
    "契約書",
    "菜谱",
    "レシピ",
    "会议记录",
    "議事録",
    "일기",
    "계약서",
    "편지",
    "회의록",
)
