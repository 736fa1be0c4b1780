"""A process is blamed for its exit only if nothing else explains the exit."""

import signal

import pytest

from harness.environments.host.exits import EXIT_HOST, ended_by
from tests.support.repeated import for_each


def by(code, *, on_env=False, oom_kills=0, expected=False):
    return ended_by(code, expected=expected, on_env=on_env, oom_kills=oom_kills).by


@pytest.mark.parametrize("on_env", [False, True])
@pytest.mark.parametrize(
    ("number", "killed", "exited"),
    [
        (signal.SIGKILL, "host", "host"),
        (signal.SIGTERM, "host", "host"),
        (signal.SIGINT, "host", "unknown"),
        (signal.SIGHUP, "host", "unknown"),
        (signal.SIGQUIT, "host", "unknown"),
        (signal.SIGUSR1, "host", "unknown"),
        (signal.SIGXCPU, "host", "unknown"),
        (signal.SIGSEGV, "itself", "itself"),
        (signal.SIGABRT, "itself", "itself"),
        (signal.SIGILL, "itself", "itself"),
    ],
)
def test_signals_are_read_from_both_kinds_of_codes(number, killed, exited, on_env):
    assert (by(-number, on_env=on_env), by(128 + number, on_env=on_env)) == (killed, exited)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_negative_number_that_a_parent_passes_on_is_read_modulo_256(number):
    assert by(256 - number) == "unknown"


@pytest.mark.parametrize("code", [1, 2, 3, 70, 71, 100, 127, 128, 254, 255])
def test_other_codes_are_the_programs_own(code):
    assert by(code) == by(code, oom_kills=None) == "itself"
    assert by(code, expected=True) == "nemesis"


def test_nought_is_how_programs_end_that_are_asked_to():
    assert (by(0, on_env=True), by(0), by(0, expected=True)) == ("host", "unknown", "nemesis")


def test_a_program_beside_which_the_oom_killer_acted_may_lack_a_child():
    assert {by(code, oom_kills=1) for code in (1, -signal.SIGABRT, 134)} == {"unknown"}
    assert by(-signal.SIGKILL, oom_kills=1) == "host"
    # a test runner has no child processes that the OOM killer could have hit
    assert by(1, on_env=True, oom_kills=1) == "itself"


def test_a_host_that_keeps_a_node_from_starting():
    assert by(EXIT_HOST, on_env=True, expected=True) == "host"
    assert by(EXIT_HOST) == "itself"


@for_each("code", [*range(-64, 256)])
def test_whatever_is_not_its_own_says_why(code):
    for on_env in (False, True):
        ending = ended_by(code, expected=False, on_env=on_env, oom_kills=0)
        assert (ending.note is None) == (ending.by == "itself" or (on_env and code == EXIT_HOST))
