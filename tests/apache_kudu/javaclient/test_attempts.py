"""The Java client's traces, read as attempts that prove whether a change took effect."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ops import Attempt
from targets.apache_kudu.javaclient.attempts import (
    NO_ANSWER,
    Sent,
    effect_at_master,
    effect_at_tablet,
    outcome_of,
    read_frames,
    recorded,
)
from targets.kudu.client.classify import Effect
from tests.apache_kudu.javaclient.frames import MASTER, MS, came, frame, sent, sleeps

LOST = (
    "operation requested can only be executed on a leader master, but this master is no longer "
    "the leader: Illegal state: an error occurred while writing to the sys-catalog: Not the leader"
)


def test_each_rpc_that_was_sent_is_an_attempt_with_the_first_thing_that_came_of_it():
    frames = [
        sent(0),
        sleeps(3, "SERVICE_UNAVAILABLE", "Not the leader"),
        came(4, "SERVICE_UNAVAILABLE", "Not the leader"),
        sleeps(5, "SERVICE_UNAVAILABLE", "no master was found"),  # no RPC was sent before this wait
        sent(7, server="other"),
        sent(8, call=1, method="GetTableSchema"),
        came(9),
        sent(11),
    ]
    attempts, truncated = read_frames(frames)
    assert not truncated
    assert [(each.method, each.server, each.code) for each in attempts] == [
        ("CreateTable", MASTER, "SERVICE_UNAVAILABLE"),
        ("CreateTable", "other", "OK"),
        ("GetTableSchema", MASTER, NO_ANSWER),
        ("CreateTable", MASTER, NO_ANSWER),
    ]
    assert [(each.start_ns, each.end_ns) for each in attempts] == [
        (0, 3 * MS),
        (7 * MS, 9 * MS),
        (8 * MS, None),
        (11 * MS, None),
    ]


def test_a_trace_that_became_too_long_is_noticed():
    cut = frame("TRACE_TRUNCATED", 2, "NONE", "", 0, "CreateTable", None, None)
    assert read_frames([sent(0), came(1), cut])[1]


def test_attempts_keep_to_the_time_of_their_operation():
    attempts, _ = read_frames([sent(1), came(3, "NOT_FOUND", "gone"), sent(4)])
    times = recorded(attempts, lambda server: f"m2:{server}", 100, 100 + 4 * MS)
    assert times == (
        Attempt("m2", 100 + MS, 100 + 3 * MS, "NOT_FOUND: gone"),
        Attempt("m2", 100 + 4 * MS, 100 + 4 * MS, "RPC/SENT: no answer"),
    )


def attempt(code, text=""):
    return Sent("CreateTable", MASTER, None, 0, 1, code, text)


@pytest.mark.parametrize(
    ("code", "text", "effect"),
    [
        ("OK", "", Effect.DONE),
        ("ALREADY_PRESENT", "table t already exists with id i", Effect.REFUSED),
        ("NOT_FOUND", "the table does not exist", Effect.REFUSED),
        ("INVALID_ARGUMENT", "too many columns", Effect.REFUSED),
        ("SERVICE_UNAVAILABLE", "new table name t is already reserved", Effect.NONE),
        ("SERVICE_UNAVAILABLE", "Leader not yet ready to serve requests", Effect.NONE),
        ("ILLEGAL_STATE", "Not the leader. Local UUID: a", Effect.NONE),
        ("SERVICE_UNAVAILABLE", LOST, Effect.UNKNOWN),
        ("NOT_FOUND", "an error occurred while updating the sys-catalog: x", Effect.UNKNOWN),
        ("SERVICE_UNAVAILABLE", "the queue is full", Effect.UNKNOWN),
        ("NETWORK_ERROR", "connection closed", Effect.UNKNOWN),
        (NO_ANSWER, "", Effect.UNKNOWN),
    ],
)
def test_the_effect_of_an_attempt_at_a_master(code, text, effect):
    assert effect_at_master(attempt(code, text)) is effect


@pytest.mark.parametrize(
    ("code", "text", "effect"),
    [
        ("OK", "", Effect.DONE),
        ("ILLEGAL_STATE", "Replica a is not leader of this config. Role: LEARNER", Effect.NONE),
        ("NOT_FOUND", "Tablet not found", Effect.NONE),
        ("ABORTED", "Op aborted", Effect.UNKNOWN),
        # a duplicate row is reported per row, so an error for the whole RPC proves nothing
        ("ALREADY_PRESENT", "", Effect.UNKNOWN),
        (NO_ANSWER, "", Effect.UNKNOWN),
    ],
)
def test_the_effect_of_an_attempt_at_a_tablet(code, text, effect):
    assert effect_at_tablet(attempt(code, text)) is effect


def effects_possible(effects, *, goes_on):
    """Return every possible number of times that a change took effect: a brute-force oracle.

    An attempt of unknown outcome may have taken effect or not.
    """
    choices = [{Effect.DONE: (1,), Effect.UNKNOWN: (0, 1)}.get(effect, (0,)) for effect in effects]
    if goes_on and (not effects or effects[-1] not in {Effect.DONE, Effect.REFUSED}):
        choices.append((0, 1))
    return {sum(chosen) for chosen in itertools.product(*choices)}


@given(st.lists(st.sampled_from(Effect), max_size=6), st.booleans())
def test_a_change_counts_as_lost_exactly_if_its_effect_is_not_certain(effects, goes_on):
    # The client stops at an attempt that was acknowledged or refused.
    final = {Effect.DONE, Effect.REFUSED}
    end = next((at for at, each in enumerate(effects) if each in final), len(effects) - 1)
    effects = effects[: end + 1]
    attempts = [attempt(NO_ANSWER)._replace(start_ns=at) for at in range(len(effects))]
    outcome = outcome_of(attempts, lambda each: effects[each.start_ns], may_go_on=goes_on)
    assert outcome.effect is (effects[-1] if effects else Effect.NONE)
    assert outcome.lost == (len(effects_possible(effects, goes_on=goes_on)) > 1)
