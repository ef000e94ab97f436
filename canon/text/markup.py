"""What stands inside tags."""

import re
from collections.abc import Sequence

from canon.text.guard import Guard

_TAG = re.compile(r"<(/?)([A-Za-z_][\w:.-]*)(?:\s[^<>]*)?(/?)>")
_DOCUMENT = re.compile(r"<\?xml|<!doctype", re.IGNORECASE)
# Elements whose text is a document's, https://html.spec.whatwg.org/#toc-semantics; those that people use as tags of a
# prompt's own (summary, section, details, data, time, title, article, main, address, menu, code) are not among them.
_HTML = re.compile(
    r"(?:html|head|body|style|script|pre|[pabius]|em|strong|small|div|span|table|thead|tbody|tfoot|t[rdh]|caption|[uod]l"
    r"|li|d[td]|h[1-6]|header|footer|nav|aside|figure|figcaption|blockquote|form|input|label|select|option|button"
    r"|textarea|svg|math|iframe|canvas|video|audio|picture|noscript|template|fieldset|center|font)$",
    re.IGNORECASE,
)


def mark_tags(lines: Sequence[str], guards: list[Guard | None]) -> None:
    """Marks from the line with an opening tag on to the line with its closing tag, both on different lines.

    A line that is nothing but the closing tag stays as the region around it is. Tags that never close, such as
    `<name>` standing for a name, open nothing.
    """
    opened: dict[str, list[int]] = {}
    document = False
    change = [0] * (len(lines) + 1)  # +1 where a region starts, -1 where it stops
    html = [0] * (len(lines) + 1)
    for at, line in enumerate(lines):
        if "<" not in line or guards[at]:
            continue
        document = document or _DOCUMENT.search(line) is not None
        for tag in _TAG.finditer(line):
            closing, name, empty = tag.groups()
            if empty:
                continue
            if not closing:
                opened.setdefault(name, []).append(at)
            elif starts := opened.get(name):
                start = starts.pop()
                stop = at + (line.strip() != tag[0]) if at > start else start
                counts = html if document or _HTML.match(name) else change
                counts[start] += 1
                counts[stop] -= 1
    _fill(guards, change, "tagged")
    _fill(guards, html, "markup", over="tagged")


def _fill(guards: list[Guard | None], change: list[int], guard: Guard, over: Guard | None = None) -> None:
    depth = 0
    for at in range(len(guards)):
        depth += change[at]
        if depth and (guards[at] is None or guards[at] == over):
            guards[at] = guard
