"""Tool calls come out of a model's text, whole, in order, and the same however the text was cut."""

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.embedded.output.tool_parsers import (
    CallArguments,
    CallStart,
    ContentPiece,
    ToolParser,
    ToolPiece,
    detect,
    tool_parser,
    tool_parser_names,
)

Call = tuple[str, str]  # name and arguments text
GOLDEN: list[tuple[str, str, str, list[Call]]] = [
    # parser, text, content, calls
    ("hermes", "No call at all.\n", "No call at all.\n", []),
    ("hermes", "  \n", "  \n", []),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", [("f", '{"a": 1}')]),
    (
        "hermes",
        '\n\n<tool_call>{"arguments":{ "a" :1.0},"name":"f"}</tool_call>\n',
        "",
        [("f", '{ "a" :1.0}')],
    ),
    (
        "hermes",
        'I look.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"x": [1, {"y": "}"}]}}\n</tool_call>\n',
        "I look.",
        [("f", "{}"), ("g", '{"x": [1, {"y": "}"}]}')],
    ),
    (
        "hermes",
        'A\n<tool_call>{"name": "f", "arguments": {}}</tool_call>\nB ',
        "A\n\nB",
        [("f", "{}")],
    ),
    (  # the end tag inside a string is text, escapes stay as they are
        "hermes",
        r'<tool_call>{"name": "f", "arguments": {"a": "</tool_call> \" \\", "é": "\u00e9👩‍👧"}}</tool_call>',
        "",
        [("f", r'{"a": "</tool_call> \" \\", "é": "\u00e9👩‍👧"}')],
    ),
    (  # arguments as a JSON string, missing, null and empty
        "hermes",
        r'<tool_call>{"name": "f", "arguments": "{\"a\": \"x\\n\"}"}</tool_call>'
        '<tool_call>{"name": "g"}</tool_call><tool_call>{"name": "h", "arguments": null}</tool_call>'
        '<tool_call>{"arguments": "", "name": "i"}</tool_call>',
        "",
        [("f", r'{"a": "x\n"}'), ("g", "{}"), ("h", "{}"), ("i", "{}")],
    ),
    (  # other keys, parameters for arguments, a list in one tag
        "hermes",
        '<tool_call>[{"id": [1, "}"], "name": "f", "parameters": {"a": 1}, "type": "function"}, '
        '{"name": "g", "arguments": {}}]</tool_call>',
        "",
        [("f", '{"a": 1}'), ("g", "{}")],
    ),
    (  # not an object
        "hermes",
        '<tool_call>{"name": "f", "arguments": [1, "a"]}</tool_call>',
        "",
        [("f", '[1, "a"]')],
    ),
    # closed too little, too much, and not at all
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call>x', "x", [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}}\n</tool_call>x', "x", [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1\n</tool_call>x', "x", [("f", '{"a": 1\n')]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "b\n}}</tool_call>x',
        "x",
        [("f", '{"a": "b\n}}')],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b', "", [("f", '{"a": "b')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool', "", [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}} and more', "and more", [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "<b</tool_c', "", [("f", '{"a": "<b</tool_c')]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}}<tool_call>{"name": "g", "arguments": {}}',
        "",
        [("f", "{}"), ("g", "{}")],
    ),
    # no call after all: given back to the letter
    *(
        ("hermes", text, text, list[Call]())
        for text in (
            "<tool_call>",
            "Say <tool",
            "<tool_call>\nf(1)\n</tool_call>\n",
            "<tool_call>{'name': 'f'}</tool_call>",
            '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
            '<tool_call>{"name": "f", "arguments": foo}</tool_call>',
            '<tool_call>{"arguments": {"a": 1}}</tool_call> b',
            '<tool_call>{"arguments": {"a": 1}, "na',
            '<tool_call>{"name": "f"\n</tool_call>',
            '<tool_call>{"name": "f", "arguments": "{}\n</tool_call>',
            "a </tool_call> b",
            "x < y << z <tool> <tool_call",
            '  {"name": "f", "arguments": {}}',
        )
    ),
    (
        "hermes",
        '<tool_call>oops\n<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        "<tool_call>oops",
        [("f", "{}")],
    ),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        "",
        [("f", '{"a": 1}'), ("g", "{}")],
    ),
    (
        "mistral",
        'Hi [TOOL_CALLS]f[ARGS]{"a": "]"}[TOOL_CALLS] g_1[CALL_ID]abcdefghi[ARGS]{}',
        "Hi",
        [("f", '{"a": "]"}'), ("g_1", "{}")],
    ),
    ("mistral", "[TOOL_CALLS]f[", "[TOOL_CALLS]f[", []),
    ("mistral", "[TOOL_CALLS]just\ntext[ARGS]", "[TOOL_CALLS]just\ntext[ARGS]", []),
    ("mistral", "[TOOL_CALLS]f[ARGS]oops ", "[TOOL_CALLS]f[ARGS]oops ", []),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    (
        "llama3_json",
        ' <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": ";"}}',
        "",
        [("f", "{}"), ("g", '{"b": ";"}')],
    ),
    ("llama3_json", '{"answer": {"name": "f"}, "x": [1]}', '{"answer": {"name": "f"}, "x": [1]}', []),
    ("llama3_json", 'Use {"name": "f", "parameters": {}}', 'Use {"name": "f", "parameters": {}}', []),
    ("llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
]


def make(name: str, parallel: bool = True) -> ToolParser:
    numbers = itertools.count()
    return tool_parser(name)(parallel=parallel, new_id=lambda: f"id{next(numbers)}")


def run(parser: ToolParser, pieces: Iterable[str]) -> list[ToolPiece]:
    out = [out for piece in pieces for out in parser.push(piece)]
    return out + parser.finish()


def joined(pieces: list[ToolPiece]) -> list[ToolPiece]:
    """The same with neighbouring texts joined: what a client that collects deltas sees."""
    out: list[ToolPiece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if isinstance(piece, ContentPiece) and isinstance(last, ContentPiece):
            out[-1] = ContentPiece(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments):
            assert piece.call == last.call
            out[-1] = CallArguments(last.call, last.text + piece.text)
        else:
            out.append(piece)
    return out


def content(pieces: list[ToolPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, ContentPiece))


def calls(pieces: list[ToolPiece]) -> list[Call]:
    starts = [piece for piece in pieces if isinstance(piece, CallStart)]
    assert [start.call for start in starts] == list(range(len(starts)))
    assert [start.id for start in starts] == [f"id{at}" for at in range(len(starts))]
    return [
        (start.name, "".join(p.text for p in pieces if isinstance(p, CallArguments) and p.call == start.call))
        for start in starts
    ]


@pytest.mark.parametrize(("name", "text", "expected_content", "expected_calls"), GOLDEN)
def test_golden_texts_at_every_cut(
    name: str, text: str, expected_content: str, expected_calls: list[Call]
) -> None:
    whole = joined(run(make(name), [text]))
    assert (content(whole), calls(whole)) == (expected_content, expected_calls)
    for at in range(1, len(text)):
        assert joined(run(make(name), [text[:at], text[at:]])) == whole
    assert joined(run(make(name), text)) == whole


TAGS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"]
JSON = ['{"name": "f", "arguments": ', '"name"', '"arguments"', '{"a": "b"}', "{}", "null", '"x"', "👩‍👧"]
FRAGMENTS = st.sampled_from([*'<>{}[]":,; \n\\ab1', *TAGS, *JSON])


@given(fragments=st.lists(FRAGMENTS, max_size=25), name=st.sampled_from(tool_parser_names()), data=st.data())
def test_any_text_at_any_cut_gives_the_same_as_in_one_piece(
    fragments: list[str], name: str, data: st.DataObject
) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    whole = joined(run(make(name), [text]))
    assert joined(run(make(name), pieces)) == whole
    assert joined(run(make(name), text)) == whole
    if not calls(whole):
        assert content(whole) == text, "without a call, nothing may be lost"


@given(
    golden=st.sampled_from(GOLDEN),
    edits=st.lists(st.tuples(st.floats(0, 1), FRAGMENTS), max_size=3),
    data=st.data(),
)
def test_damaged_calls_at_any_cut_give_the_same_as_in_one_piece(
    golden: tuple[str, str, str, list[Call]], edits: list[tuple[float, str]], data: st.DataObject
) -> None:
    name, text, _, _ = golden
    for where, fragment in edits:
        at = int(where * len(text))
        text = text[:at] + fragment + text[at + data.draw(st.integers(0, 3)) :]
    whole = joined(run(make(name), [text]))
    assert joined(run(make(name), text)) == whole
    size = data.draw(st.integers(2, 9))
    assert joined(run(make(name), (text[at : at + size] for at in range(0, len(text), size)))) == whole


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)


@given(
    wanted=st.lists(st.tuples(st.text(min_size=1, max_size=8), ARGUMENTS), min_size=1, max_size=3),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
    size=st.integers(1, 9),
)
def test_any_arguments_come_out_as_they_were_written(
    wanted: list[tuple[str, dict[str, object]]], indent: int | None, ascii_only: bool, size: int
) -> None:
    written = [(n, json.dumps(a, indent=indent, ensure_ascii=ascii_only)) for n, a in wanted]
    blocks = [f'<tool_call>\n{{"name": {json.dumps(n)}, "arguments": {a}}}\n</tool_call>' for n, a in written]
    text = "\n".join(blocks)
    out = run(make("hermes"), (text[at : at + size] for at in range(0, len(text), size)))
    assert calls(out) == written
    assert content(out) == ""


def test_arguments_stream_as_they_are_written() -> None:
    parser = make("hermes")
    assert parser.push('<tool_call>{"name": "f", "arguments": ') == []
    assert parser.push('{"city": "Par') == [CallStart(0, "id0", "f"), CallArguments(0, '{"city": "Par')]
    assert parser.push('is"') == [CallArguments(0, 'is"')]
    assert parser.push("}") == [CallArguments(0, "}")]
    assert parser.push("}</tool_call>") == []


def test_content_streams_but_for_a_beginning_of_a_tag_and_space_before_it() -> None:
    parser = make("hermes")
    assert parser.push("Let me see. ") == [ContentPiece("Let me see.")]
    assert parser.push("1 <") == [ContentPiece(" 1")]
    assert parser.push(" 2") == [ContentPiece(" < 2")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>[{"name": "f", "arguments": {}},'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}'),
        ("mistral", "[TOOL_CALLS]f[ARGS]{}"),
        ("llama3_json", '{"name": "f", "parameters": {}}'),
    ],
)
def test_without_parallel_calls_only_the_first_one_counts(name: str, text: str) -> None:
    parser = make(name, parallel=False)
    assert not parser.done
    first = run_open(parser, text)
    assert parser.done, "generation may end here"
    assert calls(first) == [("f", "{}")]
    assert parser.push('<tool_call>{"name": "g", "arguments": {}}</tool_call> text') == []
    assert parser.finish() == []


def run_open(parser: ToolParser, text: str) -> list[ToolPiece]:
    return [out for char in text for out in parser.push(char)]


def test_a_parser_with_parallel_calls_is_never_done_by_itself() -> None:
    parser = make("hermes")
    run_open(parser, '<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    assert not parser.done


def test_deep_and_long_arguments_pass() -> None:
    deep = '{"a": ' * 5_000 + "1" + "}" * 5_000
    long = '{"a": "' + "x" * 200_000 + '"}'
    for arguments in (deep, long):
        text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
        out = run(make("hermes"), (text[at : at + 4] for at in range(0, len(text), 4)))
        assert calls(out) == [("f", arguments)]


def test_deep_arguments_in_a_string_are_no_error() -> None:
    deep = "[" * 100_000
    text = f'<tool_call>{{"name": "f", "arguments": {deep}'
    assert content(run(make("hermes"), [text])) == text
    text = f'<tool_call>{{"name": "f", "arguments": "{deep}"}}</tool_call>'
    assert calls(run(make("hermes"), [text])) == [("f", f'"{deep}"')]


def test_ids_are_unique_and_in_the_familys_form() -> None:
    ids = {tool_parser("hermes").new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(i) == 29 and i.startswith("call_") and int(i[5:], 16) >= 0 for i in ids)
    assert all(len(i) == 9 and i.isalnum() for i in (tool_parser("mistral").new_id() for _ in range(20)))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>\n<tool_call>', "hermes"),
        ("<tool_call>\n<function=example_function_name>\n<parameter=", None),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", None),
        ("{{- '[TOOL_CALLS] [' }}", "mistral"),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', "llama3_json"),
        ("{% for message in messages %}<|im_start|>{{ message['role'] }}", None),
        (None, None),
    ],
)
def test_the_parser_is_found_by_the_chat_template(template: str | None, expected: str | None) -> None:
    found = detect(template)
    assert (found.name if found else None) == expected


def test_an_unknown_parser_name_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="hermes"):
        tool_parser("nope")
