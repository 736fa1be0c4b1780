"""Names and labels, and who is taken for dead."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.environments.controller import Controller, Life, life, this_controller
from harness.environments.docker.engine.labels import Part, container_name, network_name
from harness.environments.procfs import ProcessId

HERE = this_controller()


def test_a_controller_survives_its_label():
    assert Controller.parse(str(HERE)) == HERE
    assert HERE.process.pid == os.getpid()


@pytest.mark.parametrize(
    "text", ["", "12", "12:3", "12:3@x/4", "12:3@ab-c/", "a:3@ab/4", "1:2@a/3 "]
)
def test_a_broken_label_is_no_controller(text):
    with pytest.raises(ValueError, match="PID:TICKS@BOOT-ID/NAMESPACE"):
        Controller.parse(text)


RECYCLED = HERE._replace(process=ProcessId(HERE.process.pid, HERE.process.start_ticks - 1))
ELSEWHERE = HERE._replace(boot_id="0-0")
INSIDE = HERE._replace(pid_namespace=1, process=ProcessId(2**22 + 1, 1))


@pytest.mark.parametrize(
    ("controller", "is_local", "expected"),
    [
        (HERE, True, Life.ALIVE),
        (HERE, False, Life.ALIVE),
        (RECYCLED, True, Life.DEAD),
        (ELSEWHERE, True, Life.DEAD),  # this machine was restarted
        (ELSEWHERE, False, Life.UNKNOWN),  # or it is another machine's
        (INSIDE, True, Life.UNKNOWN),  # a process we cannot see
    ],
)
def test_only_what_is_surely_dead_is_taken_for_dead(controller, is_local, expected):
    assert life(controller, HERE, same_machine=is_local) is expected


@given(st.text(min_size=1, max_size=200))
def test_names_are_what_engines_allow(run_id):
    for name in (
        network_name(run_id),
        container_name(run_id, "m1"),
        container_name(run_id, "m1", Part.KEEPER),
    ):
        assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name)
        assert len(name) < 128


@given(st.lists(st.text(max_size=100), min_size=2, max_size=2, unique=True))
def test_different_runs_have_different_names(run_ids):
    first, second = run_ids

    assert network_name(first) != network_name(second)


def test_ordinary_run_ids_stay_readable():
    assert container_name("20251121T0159-a1", "m1") == "harness-20251121T0159-a1-m1"
