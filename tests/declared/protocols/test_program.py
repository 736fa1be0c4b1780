"""Helper programs carry out operations, and may print anything as an answer."""

import asyncio
import os
import sys

import pytest

from harness.errors import UsageError
from targets.declared.protocols import FAILURES, protocol_of
from tests.declared.protocols.scenarios import SCENARIOS
from tests.declared.protocols.servers import NODE, Caller, env_at

KEEPS = """
import json, sys
data = {}
for line in sys.stdin:
    asked = json.loads(line)
    key, answer = asked["key"], {"ok": None}
    if asked["f"] == "read":
        answer = {"ok": data.get(key)}
    elif asked["f"] == "write":
        data[key] = asked["value"]
    elif data.get(key) == asked["old"]:
        data[key] = asked["new"]
    else:
        answer = {"ok": False}
    print(json.dumps({"id": asked["id"], **answer}), flush=True)
"""
SAYS = """
import sys
for line in sys.stdin:
    sys.stdout.write({!r})
    sys.stdout.flush()
    if {!r}:
        sys.exit("it is over")
"""
SILENT = """
import sys
for line in sys.stdin:
    pass
"""
pytestmark = [pytest.mark.process, pytest.mark.quick]


def settings(code, **more):
    return {"command": [sys.executable, "-c", code, "{host}", "{port}"], **more}


def run(code, body, vocabulary="register"):
    async def main():
        wanted = settings(code, vocabularies=["register", "registers"])
        async with Caller("program", env_at(7), wanted, {}, vocabulary) as call:
            return await body(call)

    return asyncio.run(main())


@pytest.mark.parametrize("vocabulary", ["register", "registers"])
def test_a_program_that_keeps_registers(vocabulary):
    run(KEEPS, SCENARIOS[vocabulary], vocabulary)


@pytest.mark.parametrize(
    ("says", "ends", "read", "write"),
    [
        ('{"id": 1, "ok": 5}\n', False, ("ok", {"result": "ok", "value": 5}), "ok"),
        ('{"id": 1, "ok": null}\n', False, ("ok", {"result": "ok", "value": None}), "ok"),
        ('{"id": 1, "fail": "no leader"}\n', False, ("fail", None), "fail"),
        ('{"id": 1, "info": "timeout"}\n', False, ("fail", None), "info"),
        ("", True, ("fail", None), "info"),
        ("\n", False, ("fail", None), "info"),
        ('{"id": 1, "ok": 5}', True, ("fail", None), "info"),
        ('{"id": 1, "ok": 5', True, ("fail", None), "info"),
        ('{"id": 2, "ok": 5}\n', False, ("fail", None), "info"),
        ('{"id": true, "ok": 5}\n', False, ("fail", None), "info"),
        ('{"ok": 5}\n', False, ("fail", None), "info"),
        ('{"id": 1}\n', False, ("fail", None), "info"),
        ('{"id": 1, "ok": 5, "fail": "both"}\n', False, ("fail", None), "info"),
        ('{"id": 1, "ok": 5, "value": 5}\n', False, ("fail", None), "info"),
        ("5\n", False, ("fail", None), "info"),
        ('{"id": 1, "ok": NaN}\n', False, ("fail", None), "info"),
        ("Traceback (most recent call last):\n", False, ("fail", None), "info"),
    ],
)
def test_what_a_program_says(says, ends, read, write):
    async def reads(call):
        return await call("read")

    async def writes(call):
        return (await call("write", {"value": 5}))[0]

    code = SAYS.format(says, ends)
    assert run(code, reads) == read
    assert run(code, writes) == write


def test_the_last_words_of_a_program_are_shown():
    async def body(call):
        await call("read")
        return call.session.attempts[-1].outcome

    assert run(SAYS.format("", True), body).endswith("it is over")


def test_a_program_that_has_ended_was_sent_nothing():
    async def body(call):
        process = call.session._process
        process.kill()
        await process.wait()
        return await call("write", {"value": 5})

    assert run(KEEPS, body) == ("fail", None)


def test_closing_ends_a_silent_program():
    async def body(call):
        asked = asyncio.ensure_future(call("write", {"value": 5}))
        await asyncio.sleep(0)
        assert call.session.sent
        asked.cancel()
        await asyncio.wait([asked])
        assert call.session.may_have_changed
        await call.session.close()
        with pytest.raises(ProcessLookupError):
            os.kill(call.session._process.pid, 0)

    run(SILENT, body)


def test_it_learns_where_its_node_is(tmp_path):
    code = f"import sys; open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]))"
    wanted = settings(code)
    wanted["command"] += ["{node}"]

    async def main():
        session = await protocol_of("program", wanted).open(env_at(4711), NODE)
        await session._process.wait()
        await session.close()

    asyncio.run(main())
    assert (tmp_path / "words").read_text() == "127.0.0.1 4711 n1"


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({}, "client"),
        ({"command": ""}, "client.command"),
        ({"command": "python3 helper.py"}, "client.command"),
        ({"command": "no-such-program {host} {port}"}, "client.command"),
        ({"command": "'x {host} {port}"}, "client.command"),
        ({"command": "python3 {host} {port} {hots}"}, "client.command"),
        ({"command": "python3 {host} {port}", "vocabularies": ["sets"]}, "client.vocabularies"),
        ({"command": "python3 {host} {port}", "vocabulary": "set"}, "client"),
    ],
)
def test_wrong_settings(wrong, where):
    with pytest.raises(UsageError, match=f"^{where}( is |:)"):
        protocol_of("program", wrong)


def test_a_program_that_cannot_start_is_an_error_of_opening(tmp_path):
    program = tmp_path / "helper"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)

    async def main():
        wanted = {"command": [str(program), "{host}", "{port}"]}
        with pytest.raises(FAILURES):
            await protocol_of("program", wanted).open(env_at(7), NODE)

    asyncio.run(main())
