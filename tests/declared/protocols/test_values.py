"""Values of any kind come back unchanged through every protocol."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from targets.declared.protocols import MalformedError
from targets.declared.protocols.text import check_names, decoded, encoded, filled
from tests.declared.protocols.servers import WORLDS, run

characters = st.characters(exclude_categories=["Cs"])
# PostgreSQL's strings cannot contain NUL
keys = st.text(characters.filter("\0".__ne__), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(characters),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(characters), inner),
    max_leaves=8,
)
NASTY = ["", " ", "'", '"', "\\", "\r\n", "a\1b", "ünï☃😀", "{key}", "%s", "END", "%2F", "/", ".."]


def same(left, right):
    return encoded(left) == encoded(right)


@pytest.mark.parametrize("name", WORLDS)
@settings(max_examples=10)
@given(st.lists(st.tuples(keys, values), min_size=1, max_size=3))
def test_every_value_survives(name, writes):
    async def body(call, _):
        latest = dict(writes)
        for key, value in writes:
            assert (await call("write", {"key": key, "value": value}))[0] == "ok"
        for key, value in latest.items():
            read = await call("read", {"key": key})
            assert read[0] == "ok"
            assert same(read[1]["value"], value)
            swap = {"key": key, "old": value, "new": [value]}
            assert (await call("cas", swap))[0] == "ok"
            assert same((await call("read", {"key": key}))[1]["value"], [value])

    run(name, body, vocabulary="registers")


@pytest.mark.parametrize("name", WORLDS)
def test_every_nasty_text_survives(name):
    async def body(call, _):
        for number, text in enumerate(NASTY):
            value = {text: [text, number]}
            assert (await call("write", {"key": text, "value": value}))[0] == "ok"
        for number, text in enumerate(NASTY):
            read = await call("read", {"key": text})
            assert read == ("ok", {"result": "ok", "value": {text: [text, number]}})

    run(name, body, vocabulary="registers")


@given(values)
def test_json_is_exact(value):
    assert same(decoded(encoded(value)), value)
    assert same(decoded(encoded(value).encode()), value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n", "OK", "NaN", "-Infinity", "{", "[1", '"\\ud800"', "1 2", b"\xff", "[" * 9999],
)
def test_no_other_text_is_a_value(text):
    with pytest.raises(MalformedError):
        decoded(text)


@given(keys, values)
def test_what_placeholders_stand_for(key, value):
    arguments = {"key": key, "value": value}
    assert filled("{key}|{value}", arguments) == f"{key}|{encoded(value)}"
    assert decoded(filled("[{key:json}, {value:json}]", arguments)) == [key, value]
    assert filled('{"a": 1} {x y} {} {Key}', arguments) == '{"a": 1} {x y} {} {Key}'


def test_placeholders_are_checked():
    check_names("w", ["{key}", {"{value:base64}": ["{value}"]}], {"key", "value"})
    for wrong in ("{kye}", ["a", {"b": "{kye}"}], "{key:base46}"):
        with pytest.raises(UsageError, match=r"^w: \{k"):
            check_names("w", wrong, {"key", "value"})
