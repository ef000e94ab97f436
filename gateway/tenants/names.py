"""What a tenant, a group or an engine may be called.

Names stand in headers between gateways, in labels of metrics, rows, log lines, file names, and keys of Redis, and salts
are made from them. So they have one form only, byte for byte, everywhere: letters beyond ASCII are refused, which
would have several (composed or not), look alike, and need an encoding of their own in each of these places.
"""

import re

PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
RULE = (
    "a name has the letters A to Z and a to z, digits and . _ - in it, begins with a letter or a digit, and has 64 "
    "characters at most"
)
_NAME = re.compile(PATTERN[1:-1])


def checked_name(name: str) -> str:
    """The same; raises ValueError, which says what is allowed, for any other."""
    if _NAME.fullmatch(name) is None:
        beyond = "" if name.isascii() else "; letters beyond ASCII are in none"
        raise ValueError(RULE + beyond)
    return name
