"""Requests to the process that holds a cluster, over a Unix socket."""

import asyncio
import socket

import pytest

from harness.errors import HarnessError, InfrastructureError, TargetError, UsageError
from harness.up.control_socket import Break, Down, Heal, Status, ask, open_door


def answers(folder, *questions, answer):
    """Return what `ask` returns or raises for each question, while another thread answers."""

    def one(question):
        try:
            return ask(folder, question, timeout_s=20.0)
        except HarnessError as error:
            return error

    async def main():
        async with open_door(folder, answer):
            return [await asyncio.to_thread(one, question) for question in questions]

    return asyncio.run(main())


async def echo(question):
    return repr(question)


def test_a_question_comes_as_it_was_asked_and_so_does_the_answer(tmp_path):
    asked = [
        Status(), Break(fault="kill leader", for_s=1.5), Break(fault="x" * 10_000),
        Heal(id="f1"), Heal(everything=True), Down(keep_data=True),
    ]  # fmt: skip
    assert answers(tmp_path, *asked, answer=echo) == [repr(each) for each in asked]


def test_a_folder_may_have_a_longer_path_than_a_socket(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    assert answers(folder, Status(), answer=echo) == [repr(Status())]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", [UsageError, TargetError, InfrastructureError])
def test_errors_of_the_holder_are_raised_at_the_caller(kind, tmp_path):
    async def fail(question):
        raise kind("not so")

    (error,) = answers(tmp_path, Status(), answer=fail)
    assert [type(error), str(error)] == [kind, "not so"]


def test_a_bug_in_the_holder_is_reported_and_the_door_stays_open(tmp_path):
    async def fail(question):
        return {}["x"] if question == Status() else "well"

    found = answers(tmp_path, Status(), Heal(), answer=fail)
    assert [type(found[0]), found[1]] == [InfrastructureError, "well"]


def test_a_long_answer_comes_whole(tmp_path):
    async def long(question):
        return "x" * 1_000_000

    assert answers(tmp_path, Status(), answer=long) == ["x" * 1_000_000]


@pytest.mark.parametrize("said", [b"?\n", b"{}\n", b'{"ask":"fly"}\n', b"", b"x" * 100_000 + b"\n"])
def test_invalid_questions_get_an_error(said, tmp_path):
    def say():
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20.0)
            link.connect(str(tmp_path / "door"))
            link.sendall(said)
            link.shutdown(socket.SHUT_WR)
            return link.recv(65536)

    async def main():
        async with open_door(tmp_path, echo):
            return await asyncio.to_thread(say)

    assert b'"kind":"UsageError"' in asyncio.run(main())


def test_a_door_that_is_not_there_or_was_left_open_is_an_error(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InfrastructureError):
            ask(folder, Status())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "door"))
    with pytest.raises(InfrastructureError):
        ask(tmp_path, Status())


def test_a_holder_that_does_not_answer_is_not_waited_for_for_ever(tmp_path):
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "door"))
        mute.listen()
        with pytest.raises(InfrastructureError, match="did not answer"):
            ask(tmp_path, Status(), timeout_s=0.05)
