"""Reports to one master, and the moments at which dirty marks are cleared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.tserver.tablet_reports import FullOn, ReportKind, ReportTracker


def tracker() -> ReportTracker:
    return ReportTracker(failures_before_backoff=3)


def response(
    term: int = 1,
    *,
    leads: bool = False,
    processed: int = -1,
    full: bool = False,
    register: bool = False,
) -> m.TSHeartbeatResponse:
    return m.TSHeartbeatResponse(
        m.Meta("m", term),
        leader_master=leads,
        needs_reregister=register,
        needs_full_tablet_report=full,
        processed_sequence=processed,
    )


def settled(term: int = 1) -> ReportTracker:
    """Return a tracker whose master leads and has received a full report."""
    t = tracker()
    plan = t.plan()
    t.answered(plan, response(term, leads=True, processed=plan.sequence_number))
    assert not t.beat_now
    return t


def test_starts_owing_everything():
    t = tracker()
    assert t.beat_now
    plan = t.plan()
    assert (plan.register, plan.kind) == (True, ReportKind.FULL)


def test_follower_gets_registration_and_liveness_only():
    t = tracker()
    t.answered(t.plan(), response(leads=False))
    t.mark_dirty("a")
    assert not t.beat_now
    plan = t.plan()
    assert (plan.register, plan.kind, plan.tablet_ids) == (False, ReportKind.NONE, ())
    assert t.dirty == {"a": 1}


def test_dirty_tablet_is_beaten_at_once_to_the_leader_and_cleared_by_its_answer():
    t = settled()
    t.mark_dirty("b")
    t.mark_dirty("a")
    assert t.beat_now
    plan = t.plan()
    assert (plan.kind, plan.tablet_ids) == (ReportKind.INCREMENTAL, ("a", "b"))
    t.answered(plan, response(leads=True, processed=plan.sequence_number))
    assert (t.dirty, t.beat_now) == ({}, False)


def test_change_while_the_report_is_under_way_stays_dirty():
    t = settled()
    t.mark_dirty("a")
    plan = t.plan()
    t.mark_dirty("a")
    t.answered(plan, response(leads=True, processed=plan.sequence_number))
    assert "a" in t.dirty
    assert t.plan().tablet_ids == ("a",)


def test_failed_and_unhandled_reports_clear_nothing():
    t = settled()
    t.mark_dirty("a")
    t.plan()
    t.failed()
    assert "a" in t.dirty
    for _ in range(3):
        assert t.beat_now
        t.answered(t.plan(), response(leads=True, processed=-1))
        assert "a" in t.dirty
    assert not t.beat_now, "a leader that handles no reports must not be flooded with them"
    plan = t.plan()
    t.answered(plan, response(leads=True, processed=plan.sequence_number - 1))
    assert "a" in t.dirty


def test_back_off_after_failures_in_a_row():
    t = tracker()
    for count in range(3):
        assert t.beat_now
        assert t.failures == count
        t.plan()
        t.failed()
    assert not t.beat_now
    t.answered(t.plan(), response(leads=False, register=True))
    assert t.failures == 0
    assert t.beat_now


@pytest.mark.parametrize(("register", "full"), [(True, False), (False, True), (False, False)])
def test_requests_of_the_master_are_answered_at_once(register, full):
    t = settled()
    t.answered(t.plan(), response(leads=True, register=register, full=full))
    assert t.beat_now is (register or full)
    plan = t.plan()
    assert (plan.register, plan.kind is ReportKind.FULL) == (register, full)


class Master:
    """A master's knowledge of a server's tablets, which every new leadership forgets."""

    def __init__(self) -> None:
        self.term, self.leads = 1, False
        self.known: dict[str, int] = {}

    def handle(self, plan, tablets, *, processes):
        if not self.leads:
            return response(self.term, leads=False)
        if not processes or plan.kind is ReportKind.NONE:
            return response(self.term, leads=True)
        ids = tablets if plan.kind is ReportKind.FULL else plan.tablet_ids
        self.known.update({tablet: tablets[tablet] for tablet in ids})
        return response(self.term, leads=True, processed=plan.sequence_number)

    def elect(self) -> None:
        self.term, self.leads, self.known = self.term + 1, True, {}

    def depose(self) -> None:
        self.term, self.leads = self.term + 1, False


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("change"), st.sampled_from("abc")),
            st.tuples(
                st.just("beat"), st.sampled_from(["ok", "request-lost", "answer-lost", "ignored"])
            ),
            st.tuples(st.sampled_from(["elect", "depose"]), st.just("")),
        ),
        max_size=40,
    )
)
def test_whatever_happened_a_leader_soon_knows_every_tablet(steps):
    t, master, tablets = tracker(), Master(), {"a": 0}

    def beat(how: str) -> None:
        plan = t.plan()
        if how == "request-lost":
            t.failed()
            return
        answer = master.handle(plan, tablets, processes=how != "ignored")
        if how == "answer-lost":
            t.failed()
        else:
            t.answered(plan, answer)

    for step, argument in steps:
        if step == "change":
            tablets[argument] = tablets.get(argument, 0) + 1
            t.mark_dirty(argument)
        elif step == "beat":
            beat(argument)
        elif step == "elect":
            master.elect()
        else:
            master.depose()
    if not master.leads:
        master.elect()
    beats = 0
    for _ in range(3):
        if master.known == tablets:
            break
        beat("ok")
        beats += 1
    assert master.known == tablets
    assert beats <= 3
    beat("ok")
    assert t.dirty == {}


@pytest.mark.parametrize(
    ("full_on", "later_term", "after_flip"),
    [(FullOn.LATER_TERM, True, True), (FullOn.FLIP, False, True), (FullOn.NOTHING, False, False)],
)
def test_reasons_for_a_full_report(full_on, later_term, after_flip):
    t = ReportTracker(failures_before_backoff=3, full_on=full_on)
    plan = t.plan()
    t.answered(plan, response(1, leads=True, processed=plan.sequence_number))
    assert t.plan().kind is ReportKind.INCREMENTAL
    t.failed()  # this master was cut off while another one led, and now leads again
    plan = t.plan()
    t.answered(plan, response(3, leads=True, processed=plan.sequence_number))
    assert (t.plan().kind is ReportKind.FULL) is later_term
    t = ReportTracker(failures_before_backoff=3, full_on=full_on)
    t.answered(t.plan(), response(1, leads=False))
    t.answered(t.plan(), response(2, leads=True))
    assert (t.plan().kind is ReportKind.FULL) is after_flip


@pytest.mark.parametrize("full_on", [FullOn.FLIP, FullOn.LATER_TERM])
def test_a_full_report_stays_due_until_it_is_acknowledged(full_on):
    t = ReportTracker(failures_before_backoff=3, full_on=full_on)
    for _ in range(2):
        t.answered(t.plan(), response(1, leads=True))
        plan = t.plan()
        assert plan.kind is ReportKind.FULL
    t.answered(plan, response(1, leads=True, processed=plan.sequence_number))
    assert t.plan().kind is ReportKind.INCREMENTAL
