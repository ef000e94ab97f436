"""What single values look like: ids, paths, hosts, revisions, zones, coordinates.

Each expression takes time linear in the text: no repetition holds another one that could match the same characters.
"""

import re

_HEX = "[0-9a-fA-F]"
# Ids that are no id of anything else: nobody writes these by hand.
MINTED_ID = re.compile(
    rf"""
    (?P<uuid>{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}})
  | (?P<traceparent>{_HEX}{{2}}-{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}})
  | (?P<jwt>eyJ[\w-]{{8,2000}}\.[\w-]{{8,4000}}(?:\.[\w-]{{0,2000}})?)
  | (?P<ulid>[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{25}})
  | (?P<ksuid>[0-9A-Za-z]{{27}})
  | (?P<hash>{_HEX}{{32}}(?:{_HEX}{{8}}|{_HEX}{{32}})?)
    """,
    re.VERBOSE,
)
ID_END = re.compile(r"(?![\w-])")
# Any other id: one word that is not a word of a language.
TOKEN = re.compile(r"[\w][\w.:+/=@~-]{0,255}")
ABSOLUTE_PATH = re.compile(
    r"""(?:[A-Za-z]:[\\/]|\\\\|~?/|~$|\$\{?[A-Z]+\}?[\\/]|file://|\./|\.\./)"""
    r"""[^\s"'`,;<>|]*(?:[ ](?=[^\s/]+/)[^\s"'`,;<>|]+)*"""
)
TEMPORARY_PATH = re.compile(
    r"(?:/private)?/(?:tmp|var/tmp|var/folders|run/user|dev/shm)/|[A-Za-z]:[\\/].*[\\/]Temp[\\/]", re.I
)
URL = re.compile(r"(?:https?|wss?|vnc|ssh|ftp|tcp)://[^\s\"'`<>]+")
ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\w.])|\[[0-9a-fA-F:]+\](?::\d{1,5})?")
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?::\d{1,5})?(?![\w/])")
NUMBER = re.compile(r"\d{1,10}(?![\w.]\w)")
REVISION = re.compile(r"[0-9a-f]{7,64}(?!\w)")
BRANCH = re.compile(r"[\w][\w./#@+-]*")
ZONE = re.compile(
    r"""[A-Z][A-Za-z]+(?:/[A-Za-z_]+){1,2}
      | (?:UTC|GMT|Z)(?:\s*[+\u2212-]\s*\d{1,2}(?::?\d{2})?)?
      | [+\u2212-]\d{1,2}(?::?\d{2})?
      | [A-Z]{2,5}(?![a-z])
      | (?:[A-Z][a-z]+\s){1,3}(?:Standard\s|Daylight\s|Summer\s)?Time
      | (?:日本標準時|中国标准时间|北京时间|台北時間|한국\s?표준시)
    """,
    re.VERBOSE,
)
LOCALE = re.compile(
    r"[a-z]{2,3}(?:[-_][A-Za-z]{4})?(?:[-_](?:[A-Z]{2}|[a-z]{2}|\d{3}))?(?:\.UTF-?8)?(?![\w-])", re.I
)
DEGREES = r"[-+\u2212]?\d{1,3}(?:\.\d{1,12})?\s?°?\s?[NSEWO]?"
COORDINATES = re.compile(rf"\(?{DEGREES}(?:\s?[,;/]\s?|\s){DEGREES}\)?(?![\w.])")
DEGREE = re.compile(rf"{DEGREES}(?![\w.])")
MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")

_CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
NAME = re.compile(rf"{_CAPITAL}[\w.'’-]*(?:,?[ ](?:{_CAPITAL}[\w.'’-]*|de|da|di|van|von|der|la))*")
HANDLE = re.compile(r"[\w][\w.@+-]{0,63}")
