"""The harness asks a target that announces no leaders for its leader once per second."""

import asyncio
from types import SimpleNamespace

import pytest

from harness.errors import TargetError
from harness.plugins import NodeRole, Roles
from harness.run import phases as run_module
from harness.support.interrupts import UserInterrupt

LED = Roles({"n1": NodeRole("leader", 3)}, ("n1", "n2"))


def watched(*answers):
    seen, left = [], list(answers)

    async def groups():
        if not left:
            raise asyncio.CancelledError
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return {"g": answer}

    run = object.__new__(run_module.Run)
    run.system = SimpleNamespace(groups=groups)
    run.plan = SimpleNamespace(case=SimpleNamespace(system="t"))
    run.scribe = SimpleNamespace(observe_roles=seen.append)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run._watch_leaders())
    return seen


def test_a_look_that_fails_costs_only_itself(monkeypatch):
    monkeypatch.setattr(run_module, "LEADER_POLL_S", 0.0)
    failures = (OSError("gone"), TargetError("slow"), SystemExit(0))
    assert watched(LED, *failures, LED) == [LED, LED]


def test_an_interruption_is_the_users(monkeypatch):
    monkeypatch.setattr(run_module, "LEADER_POLL_S", 0.0)
    with pytest.raises(UserInterrupt):
        watched(LED, UserInterrupt())
