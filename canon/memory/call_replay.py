"""Tool calls of earlier turns given back as the model wrote them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from canon.context import RuleContext
from canon.memory.answer import Answer, CallPlace, calls_in, result_ids_in
from canon.memory.chain import value_bytes
from canon.memory.records import RecordedCalls
from canon.memory.turns import Turn
from canon.requests.paths import Path
from canon.results import Edit

RULE = "conversation_memory"
MAX_ID = 40  # characters that every upstream takes


class CallReplay:
    """Rewrites one request's tool calls; `turns` are all of its turns."""

    def __init__(self, context: RuleContext, turns: Sequence[Turn]) -> None:
        self._context = context
        self._turns = turns
        self._ids = Counter(place.call.id for place in self._places(0, len(turns)))

    def replay(self, start: int, end: int, recorded: Callable[[], Sequence[RecordedCalls]]) -> None:
        """Write the model's turns from `start` to `end` as the recorded answer that they equal, if there is one.

        `recorded` gives the calls of the answers that may stand there.
        """
        places = list(self._places(start, end))
        if not places:
            return
        calls = tuple(place.call for place in places)
        equal = [answer for answer in recorded() if Answer("", answer.calls).same_calls(Answer("", calls))]
        if not equal:
            return
        ids = [call.id for call in calls]
        # Equal calls may have been answered more than once; the client's ids tell which, else the first one stands.
        chosen = next((each for each in equal if [call.id for call in each.calls] == ids), equal[0])
        for place, call in zip(places, chosen.calls, strict=True):
            self._set(place.arguments_path, place.call.arguments, call.arguments_like(place.call.arguments))
        self._rename(places, [call.id for call in chosen.calls], end)

    def _rename(self, places: Sequence[CallPlace], new: Sequence[str], end: int) -> None:
        old = [place.call.id for place in places]
        names = dict(zip(old, new, strict=True))
        if old == list(new) or not self._may_be_named(old, new):
            return
        for place in places:
            self._set(place.id_path, place.call.id, names[place.call.id])
        for path, id_ in list(self._results(end)):
            if id_ in names:
                self._set(path, id_, names[id_])

    def _may_be_named(self, old: Sequence[str], new: Sequence[str]) -> bool:
        """Whether these calls can have the new ids, no other call of the request having one of them."""
        one_to_one = len(set(old)) == len(set(new)) == len(old)
        if not one_to_one or any(not 0 < len(id_) <= MAX_ID for id_ in new):
            return False
        self._ids.subtract(old)
        free = all(self._ids[id_] == 0 for id_ in new)
        self._ids.update(new if free else old)
        return free

    def _places(self, start: int, end: int) -> Iterator[CallPlace]:
        for turn in self._turns[start:end]:
            if turn.side == "model":
                yield from calls_in(self._context.draft.get(turn.path), turn.path)

    def _results(self, start: int) -> Iterator[tuple[Path, str]]:
        """Results that answer the turn before `start`: those up to the model's next turn."""
        for turn in self._turns[start:]:
            if turn.side == "model":
                return
            item = self._context.draft.get(turn.path)
            if isinstance(item, dict):
                yield from result_ids_in(item, turn.path)

    def _set(self, path: Path, old: object, new: object) -> None:
        if value_bytes(old) == value_bytes(new):
            return
        context = self._context
        context.draft.set(path, new)
        context.edits.append(Edit(RULE, context.where(path), _shown(old), _shown(new)))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else value_bytes(value).decode()
