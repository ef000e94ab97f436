"""The words that dates and times are written with, by language. All are in lower case."""

from typing import Literal, TypeAlias

# weekday, month; a filler such as "at" or "the"; a half of the day; a unit of time; a time zone; an era
WordClass: TypeAlias = Literal["weekday", "month", "filler", "half", "unit", "zone", "era", "part"]

_WEEKDAYS = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed weds thu thur thurs fri sat sun
montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag mo di mi do fr sa so
lundi mardi mercredi jeudi vendredi samedi dimanche lun mer jeu ven sam dim
lunes martes miércoles miercoles jueves viernes sábado sabado domingo mié mie jue vie sáb sab dom
lunedì lunedi martedì martedi mercoledì mercoledi giovedì giovedi venerdì venerdi gio
segunda terça terca quarta quinta sexta segunda-feira terça-feira quarta-feira quinta-feira sexta-feira feira
maandag dinsdag woensdag donderdag vrijdag zaterdag zondag ma wo vr za zo
poniedziałek wtorek środa czwartek piątek sobota niedziela
понедельник вторник среда четверг пятница суббота воскресенье пн вт ср чт пт сб вс
понеділок вівторок середа п'ятниця субота неділя
pazartesi salı çarşamba perşembe cuma cumartesi pazar
måndag tisdag onsdag torsdag fredag lördag söndag mandag tirsdag lørdag søndag
pondělí úterý středa čtvrtek pátek neděle
الاثنين الإثنين الثلاثاء الأربعاء الاربعاء الخميس الجمعة السبت الأحد الاحد
"""
_MONTHS = """
january february march april may june july august september october november december
jan feb mar apr jun jul aug sep sept oct nov dec
januar jänner februar märz maerz mai juni juli oktober dezember mrz okt dez
janvier février fevrier mars avril juin juillet août aout septembre octobre novembre décembre decembre
janv févr avr juil déc
enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre diciembre ene abr ago dic
gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre gen mag giu lug set ott
janeiro fevereiro março maio junho julho setembro outubro novembro dezembro fev out
januari februari maart mei augustus mrt
stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
января февраля марта апреля мая июня июля августа сентября октября ноября декабря
січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня
ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık
augusti oktober december desember marts maj
يناير فبراير مارس أبريل ابريل مايو يونيو يوليو أغسطس اغسطس سبتمبر أكتوبر اكتوبر نوفمبر ديسمبر
ledna února března dubna května června července srpna září října listopadu prosince
"""
_FILLERS = """
at on the of and in it is now um am den der dem das à a le la les el los las de del à il alle ore
às as do da o op om te w o р в год saat klockan kl den og och v ve
"""
_HALVES = "am pm a.m p.m صباحا صباحًا مساء مساءً vormittags nachmittags abends morgens mittags"
_UNITS = "uhr h hrs hours hour o'clock uur heures heure horas hora hs min s sec ч мин"
_PARTS = """
week kw cw quarter q day d year w semaine semana settimana woche unix epoch ms seconds milliseconds г года год року рік
"""
_ZONES = """
z utc gmt cet cest eet eest wet west msk bst ist est edt cst cdt mst mdt pst pdt akst akdt hst jst kst aest aedt acst
awst nzst nzdt sgt hkt pht wib brt art clt mez mesz time standard daylight summer winter local eastern central pacific
mountain european greenwich coordinated universal
"""
_ERAS = "ad bc ce bce"

# In writing without spaces a word can begin anywhere; the longest is taken first.
UNSPACED: dict[str, WordClass] = {
    **dict.fromkeys("月火水木金土日", "weekday"),
    **{f"{day}曜日": "weekday" for day in "月火水木金土日"},
    **{f"{day}曜": "weekday" for day in "月火水木金土日"},
    **{
        f"{week}{day}": "weekday"
        for week in ("星期", "周", "週", "礼拜", "禮拜")
        for day in "一二三四五六日天"
    },
    **{f"{day}요일": "weekday" for day in "월화수목금토일"},
    **dict.fromkeys(
        ("午前", "午後", "上午", "下午", "中午", "凌晨", "早上", "晚上", "오전", "오후", "正午"), "half"
    ),
    **dict.fromkeys(("令和", "平成", "昭和", "民國", "民国", "西暦", "公元", "西元"), "era"),
    **dict.fromkeys(
        ("第", "週", "周", "주", "の", "は", "，", "、", "です", "입니다", "이다", "에요", "예요"), "filler"
    ),
    **dict.fromkeys(("年", "月", "日", "號", "号", "年度", "년", "월", "일"), "part"),
    **dict.fromkeys(
        ("時", "时", "分", "秒", "点", "點", "時間", "头", "시", "분", "초", "整", "半", "刻", "元"), "unit"
    ),
    **dict.fromkeys(
        ("日本時間", "日本標準時", "北京时间", "北京時間", "台北時間", "中国标准时间", "标准时间"), "zone"
    ),
    **dict.fromkeys(
        ("第", "週", "周", "주", "の", "は", "，", "、"),
        "filler",
    ),
}


def _classes() -> dict[str, WordClass]:
    words: dict[str, WordClass] = {}
    groups: tuple[tuple[WordClass, str], ...] = (
        ("filler", _FILLERS),
        ("era", _ERAS),
        ("part", _PARTS),
        ("zone", _ZONES),
        ("unit", _UNITS),
        ("weekday", _WEEKDAYS),
        ("month", _MONTHS),
        ("half", _HALVES),
    )
    for kind, text in groups:
        words |= dict.fromkeys(text.split(), kind)
    return words


WORDS = _classes()
