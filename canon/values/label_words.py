"""The words of labels, by family and language. All are in lower case.

Of each family there are nouns (they name a thing, and in doubt any such thing: `date`), marks (they say that it is the
present one, or whose: `current`), and names (they do both: `hostname`). A word may be in several families.
"""

from typing import NamedTuple

from canon.values.words import word_set

FAMILIES = ("clock", "id", "place", "git", "user", "zone", "coordinates")
CLOCK, ID, PLACE, GIT, USER, ZONE, COORDINATES = (1 << at for at in range(len(FAMILIES)))


class Entry(NamedTuple):
    """What a word is to each family, as bits."""

    known: int
    noun: int
    mark: int
    name: int


# Words that may stand in any label and mean nothing by themselves.
FILLERS = word_set(
    """
the a an of and or in for at on as to with by your you my our this that it it's i'm we're i we its their
from x der die das des dem den dein deine ihr ihre und oder von im es um am zur zum für le la les l' de
du d' des et à a au votre nous on il elle c'est d'aujourd'hui el los las y del en tu su son al il lo gli
e di della delle alle o os as do da dos das em seu sua são no na het een van en op uw je w z i na jest
dziś и в на это ваш ve bir och den det är på din 的 の 之 与 與 和 及 了 您 你 あなた 이 그 의 및
ください ご お ユーザの
"""
)

# Words that join a label to its value.
JOINS = word_set(
    """
is are was at in on ist sind lautet est sont es son è sono é são zijn jest är er shows هو هي は が 是 为 為 은
는 이
"""
)

_NOUNS = {
    CLOCK: """
started start began opened generated rendered refreshed updated stand
date time day datetime timestamp weekday month week year clock hour quarter moment dateandtime
datum uhrzeit zeit tag wochentag zeitstempel monat jahr kalenderwoche uhr zeitpunkt
heure jour horodatage mois semaine année
fecha hora día dia año mes
data ora giorno anno
tijd tijdstip dag maand jaar
godzina czas dzień rok
дата время день год неделя час дату
tarih tarihi saat saati gün günü zaman
tid klockslag dato klokkeslæt dag
čas den datum
日期 时间 時間 时刻 時刻 日時 日付 曜日 时间戳 時間戳 星期 日子 年月日 タイムスタンプ
시간 시각 날짜 일시 요일 일자
تاريخ التاريخ الوقت وقت الساعة समय तारीख ngày giờ tanggal waktu
""",
    ID: """
id ids uuid guid ulid ksuid identifier token nonce kennung identifiant
identificador identificativo ид идентификатор 编号 編號 标识 標識 标识符 識別子 아이디 식별자
""",
    PLACE: """
directory dir folder path root scratchpad pod container instance vm worker sandbox url uri address
endpoint port host server ip machine computer node
verzeichnis ordner pfad adresse répertoire dossier chemin directorio carpeta ruta puerto cartella
percorso porta
diretório pasta caminho katalog каталог папка путь порт адрес
目录 目錄 路径 路徑 文件夹 資料夾 端口 埠 地址 主机 主機 ディレクトリ フォルダ パス ポート アドレス
ホスト 디렉터리 디렉토리 경로 포트 주소
""",
    GIT: """
branch commit revision sha head ref worktree zweig branche rama ramo 分支 提交 ブランチ コミット 브랜치
커밋
""",
    USER: """
user name username login email mail locale language lang location city country region place
benutzername sprache standort ort stadt land gebietsschema nom langue lieu emplacement ville pays
nombre idioma ubicación ubicacion ciudad país pais nome lingua posizione località città localização
cidade
naam taal locatie имя язык местоположение город
名字 姓名 名前 氏名 语言 語言 言語 位置 地点 地點 所在地 场所 城市 地区 地域 이름 언어 위치 지역
""",
    ZONE: "zone tz offset zeitzone fuseau horaire zona horaria fuso orario 时区 時區 タイムゾーン 시간대",
    COORDINATES: "location position standort ubicación posición position 位置 座標 坐标",
}
_MARKS = {
    CLOCK: """
current currently today's todays present actual system local server user's users user client utc gmt now
conversation session
request message turn live real current's exact
aktuelle aktueller aktuelles aktuellen aktuell heutige heutiger heutiges jetzige derzeitige momentane
lokale system
jour actuelle actuelles actuels actuel courante courant locale système d'aujourd'hui aujourd'hui
présente
actual actuales hoy sistema corrente correnti attuale attuali odierna locale atual atuais hoje sistema
huidige lokale vandaag aktualna aktualny obecna bieżąca lokalny
текущая текущее текущий текущие сегодняшняя сегодняшнее сейчас местное системное
güncel mevcut geçerli bugünün şimdiki yerel şu anki aktuell nuvarande dagens nuværende aktuální
当前 當前 现在 現在 目前 今天 今日 系统 系統 本地 服务器 伺服器 用户 现地 現地 本日 システム ローカル
サーバー 実際
현재 오늘 시스템 로컬 서버 지금
الحالي الحالية اليوم الآن वर्तमान hiện tại saat ini sekarang
""",
    ID: """
request session trace correlation conversation thread run chat span transaction invocation message
execution job task
device instance container workspace build client deployment tenant account room channel workflow call
response
completion interaction query event batch dialog dialogue login auth access bearer user users user's
agent process turn
activity operation worker pod sandbox vm node parent customer visitor tracking group req sess conv pid
process
sitzung sitzungs anfrage anforderungs vorgang vorgangs konversations benutzer
requête demande conversation utilisateur sesión solicitud petición usuario sessione richiesta utente
sessão
requisição sessie verzoek gebruiker сессии запроса сеанса пользователя
请求 請求 会话 會話 对话 對話 跟踪 追踪 追蹤 用户 用戶 任务 任務 消息 訊息 セッション リクエスト
トレース 会話 スレッド プロセス 进程 進程 ユーザー 実行
세션 요청 추적 대화 사용자
""",
    PLACE: """
current working work workspace scratch temp temporary tmp project home sandbox preview container dev
development debug
debugger assigned forwarded proxy browser cdp vnc remote worker pod vm instance machine
primary additional
local public private session runtime agent shell system tunnel repo repository checkout user user's
users name
aktuelles aktueller aktuelle arbeits temporäres temporärer projekt courant travail temporaire actual
trabajo temporal
proyecto corrente lavoro temporanea atual trabalho temporário temporário huidige werk рабочий рабочая
текущий текущая
временный временная 当前 當前 工作 临时 臨時 项目 項目 沙盒 沙箱 监听 監聽 現在 作業 一時 プロジェクト
サンドボックス 현재 작업 임시 프로젝트
""",
    GIT: """
current git head active checked aktueller actuelle actual 当前 當前 現在 主 현재 last
latest
""",
    USER: """
user user's users current client customer's customer caller caller's visitor visitor's browser device
system ui
member's guest's
benutzer nutzer aktueller kunde kunden l'utilisateur utilisateur utilisateur's client usuario cliente
utente usuário
gebruiker пользователя пользователь 用户 用戶 当前 當前 客户 客戶 利用者 ユーザー ユーザ 顧客 現在
사용자 고객 현재
""",
    ZONE: """
time local user user's users current system client device zeit horaire horaria de orario utc
""",
    COORDINATES: "gps geo current user user's users device map 当前 現在 현재",
}
_NAMES = {
    CLOCK: """
now currently today tomorrow yesterday sommes nowtime currenttime currentdate currentdatetime servertime localtime
systemtime
unixtime datetimenow
heute jetzt systemzeit ortszeit aujourd'hui maintenant hoy ahora oggi adesso hoje agora vandaag nu
dziś dzisiaj teraz اليوم الآن сегодня сейчас bugün şimdi idag nu dnes teď
现在 現在 今天 今日 本日 只今 目前 当前 當前 현재 오늘 지금 现时 此刻
epoch unix
""",
    ID: """
traceparent tracestate requestid sessionid traceid spanid correlationid conversationid threadid runid
userid chatid
transactionid invocationid messageid executionid jobid taskid jwt idempotency
""",
    PLACE: """
hostname cwd pwd pid ppid workdir tmpdir tempdir rechnername nom-d'hôte arbeitsverzeichnis
workingdirectory
主机名 主機名 ホスト名 호스트이름 进程号 進程號
hostnaam servername computername machinename 作業ディレクトリ 工作目录
""",
    GIT: "gitbranch currentbranch",
    USER: """
username benutzername nutzername gebruikersnaam useremail userlocale userlocation currentuser locale
用户名 用戶名 使用者名稱 ユーザー名 ユーザ名 사용자이름
""",
    ZONE: "timezone zeitzone tijdzone 时区 時區 タイムゾーン 시간대",
    COORDINATES: """
coordinates coordinate coords latitude longitude lat lon lng latlng geolocation geo
koordinaten breitengrad längengrad coordonnées latitud longitud coordenadas coordinate latitudine
longitudine
坐标 座標 经度 纬度 經度 緯度 経度 좌표 위도 경도
""",
}
# Words that belong to a label without saying anything more.
_EXTRAS = {
    CLOCK: """
seconds ms milliseconds iso stamp zone formatted last prompt pst edt est cet since utc gmt right nous 起
开始 開始
""",
    ID: "key",
    PLACE: """
started launched currently running listening available reachable at on under name you're were located
unter
befindet
""",
    GIT: "main default base name hash checked out you're",
    USER: "speaking talking",
    ZONE: "utc gmt area",
}


def _lexicon() -> dict[str, Entry]:
    bits: dict[str, list[int]] = {}
    for column, table in ((1, _NOUNS), (2, _MARKS), (3, _NAMES), (0, _EXTRAS)):
        for family, text in table.items():
            for word in text.split():
                entry = bits.setdefault(word, [0, 0, 0, 0])
                entry[0] |= family
                if column:
                    entry[column] |= family
    return {word: Entry(*entry) for word, entry in bits.items()}


_EVERYWHERE = (1 << len(FAMILIES)) - 1
LEXICON = {
    word: Entry(_EVERYWHERE, *entry[1:]) if word in FILLERS or word in JOINS else entry
    for word, entry in _lexicon().items()
}
