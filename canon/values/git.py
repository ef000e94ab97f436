"""State of a repository: branches, commits, and the block that `git status` prints."""

import re

from canon.values.label_words import GIT
from canon.values.labels import Label
from canon.values.shapes import BRANCH, REVISION
from canon.values.value import Value, is_placeholder
from canon.values.words import word_set

_REVISIONS = word_set("commit revision sha head ref hash 提交 コミット 커밋")
# Lines that begin a block of repository state; the block goes to the next blank line.
BLOCK = re.compile(
    r"""[ \t#>*_-]*(?:git[ _-]?status|current\ git\ status|repository\ status|
      (?:aktueller\ )?git-status|recent\ commits|current\ branch|main\ branch\ \([^()\n]*\)|git\ branch|status)
      [*_ \t]*[:：]""",
    re.VERBOSE | re.IGNORECASE,
)
OPENING = re.compile(
    r"[ \t#>*_-]*(?:current\ )?(?:git[ _-]?status|repository status)[*_ \t]*(?:[:：]|$)", re.IGNORECASE
)
SNAPSHOT = re.compile(r"(?:this is|a snapshot|snapshot|as of|taken|clean$)", re.IGNORECASE)
STATUS_LINE = re.compile(
    r"""[ \t]*(?:[ MADRCUT?!]{1,2}\ +\S|On\ branch\ |HEAD\ detached|Your\ branch\ |nothing\ to\ commit|no\ changes|
      Changes\ |Untracked\ files|\#\#\ \S+\.\.\.|\(clean\)|\((?:use|no)\ |[0-9a-f]{7,40}\ \S|modified:|new\ file:|
      deleted:|renamed:|working\ tree\ clean)""",
    re.VERBOSE,
)


def git_at(text: str, start: int, stop: int, label: Label) -> Value | None:
    if not _REVISIONS.isdisjoint(label.words):
        found = REVISION.match(text, start, stop)
        if found and any(c.isdigit() for c in found[0]):
            return Value("revision", found.end(), label.strong(GIT))
    found = BRANCH.match(text, start, stop)
    if found is None or is_placeholder(found[0]) or not label.joined:
        return None
    return Value("branch", found.end() - (found[0][-1] == "."), label.strong(GIT))
