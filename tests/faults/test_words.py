"""Faults that are written as text are parsed or refused, and runs use them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Case, Trigger, stream
from harness.cli import main
from harness.cluster import Capability, DiskQuality, LinkQuality, StreamQuality
from harness.errors import UsageError
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.faults.parser import parse
from harness.faults.schedules import Schedule
from harness.nodes.faults import (
    Clock,
    Cpu,
    Cut,
    Disk,
    Kill,
    Operate,
    Pause,
    Reset,
    Restart,
    Shape,
    Stream,
)
from harness.ops import NS_PER_S
from harness.plan.planning import plan_case

S = NS_PER_S


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("kill leader", Kill()),
        ("power-cut all", Kill(power_cut=True, torn=True)),
        ("restart one@master", Restart()),
        ("pause node:m1", Pause()),
        ("cut leader from members", Cut()),
        ("cut leader to members", Cut(one_way=True)),
        ("cut ring", Cut(one_way=True)),
        ("reset one from others", Reset()),
        (
            "shape client from leader delay=0.2s jitter=50ms loss=20% rate=64kB/s",
            Shape(quality=LinkQuality(delay_ms=200, jitter_ms=50, drop=0.2, rate_kb_s=64)),
        ),
        (
            "shape halves duplicate=5% reorder=10.5%",
            Shape(quality=LinkQuality(duplicate=0.05, reorder=0.105)),
        ),
        (
            "shape leader to members slice=128B gap=10ms",
            Stream(quality=StreamQuality(slice_bytes=128, gap_ms=10)),
        ),
        (
            "shape ring reset-after=0.5s",
            Stream(quality=StreamQuality(reset_after_ms=500)),
        ),
        ("clock one offset=-5s", Clock(offset_ms=-5000)),
        (
            "clock all drift=-500ppm offset=1m strobe=250ms",
            Clock(offset_ms=60_000, drift_ppm=-500, strobe_ms=250),
        ),
        ("cpu leader factor=2.5", Cpu(factor=2.5)),
        ("do step-down on leader", Operate(name="step-down")),
        ("do rolling-restart on all variant=new", Operate(name="rolling-restart", variant="new")),
        ("disk one error=5% delay=50ms", Disk(quality=DiskQuality(error=0.05, delay_ms=50))),
        ("disk one full=yes", Disk(quality=DiskQuality(full=True))),
        ("disk one bitrot=5%", Disk(quality=DiskQuality(bitrot=0.05))),
    ],
)
def test_kinds(text, kind):
    assert parse(text).kind == kind
    assert parse(f"  {text}  ").text == text


def test_a_disk_that_rots_needs_to_be_read_from_the_start():
    needs = {Capability.BIT_ROT, Capability.KILL, Capability.START}
    assert parse("disk one bitrot=5%").requires == needs
    assert parse("disk one delay=5ms").requires == {Capability.DISK_SLOW}


def test_times():
    assert parse("kill leader").schedule == Schedule()
    assert parse("kill leader every 10s for 4s").schedule == Schedule(every_ns=10 * S, for_ns=4 * S)
    assert parse("kill leader for 200ms at 1m").schedule == Schedule(at_ns=60 * S, for_ns=S // 5)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x" * 301, "kil leader", "kill", "kill boss", "kill leader follower", "cut leader",
        "kill others", "kill client", "kill client:1", "kill one@clients", "pause half@clients",
        "cut client: from leader", "cut client:01 from leader", "cut client:x from leader",
        "cut client:100000 from leader", "cut client@members from leader", "cut client:1",
        "cut all@clients from leader", "cut leader@clients from one", "cut clients from leader",
        "cut client:1 from client:2", "cut half@clients from client", "cut ring with clients",
        "cut halves with", "cut halves with members", "cut leader with clients",
        "do step-down on client:1", "kill leader@", "kill node:", "cut client from client",
        "cut others from leader", "cut leader from", "cut leader from members loss=20%",
        "shape leader from members", "shape leader from members loss=0.2",
        "shape leader from members loss=0%", "shape leader from members loss=101%",
        "shape leader from members delay=200", "shape leader from members delay=2m",
        "shape leader from members delay=1s delay=2s", "shape leader from members rate=0kB/s",
        "shape leader from members slice=0B", "shape leader from members slice=64",
        "shape leader from members slice=40000B", "shape leader from members gap=1ms",
        "shape leader from members slice=64B delay=1s", "shape one from others reset-after=6s",
        "shape leader from members speed=1", "kill leader every 10s", "kill leader for 4s",
        "kill leader every 4s for 4s", "kill leader every 0s for 0s", "kill leader at 1s for 0ms",
        "clock one", "clock one offset=5", "clock one offset=0s", "clock one offset=-0s",
        "clock one strobe=1s", "clock one drift=0ppm", "clock one drift=600000ppm",
        "clock one drift=5", "clock one from leader", "clock offset=5s", "cpu one",
        "cpu one factor=1", "cpu one factor=x", "cpu one factor=2000", "disk one",
        "disk one error=0%", "disk one full=no", "disk one delay=2m", "disk one error=5% error=6%",
        "disk one bitrot=0%", "disk one bitrot=yes",
        "disk one loss=5%", "kill it", "cut it from others", "kill it when", "kill it when event",
        "kill it when leader", "kill it when event leader term", "kill it when event leader =3",
        "kill it when event x nth=0", "kill one when event x nth=two", "when event leader",
        "kill it when event every 3s for 1s", "kill it when event x after=3",
        "do step-down", "do step-down on", "do on leader", "do step-down on client",
        "do step-down on leader variant", "do step-down on leader variant=",
        "do step-down on leader speed=1",
        "kill leader every 10s for 4s at 3s", "kill leader every ten for 4s", "kill leader at",
    ],
)  # fmt: skip
def test_wrong_sentences_are_refused(text):
    with pytest.raises(UsageError):
        parse(text)


@given(st.lists(st.sampled_from([
    "kill", "cut", "shape", "reset", "leader", "one@members", "from", "to", "ring", "every", "at",
    "for", "4s", "10s", "loss=20%", "client", "node:m1", "@", "=", "%", "clock", "disk",
    "slice=9B", "gap=1ms", "offset=-1s", "full=yes", "when", "event", "it", "term=3", "nth=2",
]), max_size=9).map(" ".join) | st.text(max_size=60))  # fmt: skip
def test_any_text_is_understood_or_refused(text):
    try:
        sentence = parse(text)
    except UsageError:
        return
    assert parse(sentence.text) == sentence


def plan(text, horizon_s=60):
    return AimedNemesis.of_text(text).plan(
        stream(1, "x"), horizon_ns=horizon_s * S, interval_ns=10 * S, duration_ns=5 * S
    )


def test_exact_times_are_kept():
    faults = plan("kill leader every 10s for 4s", horizon_s=35)
    assert [(fault.at_ns, fault.duration_ns) for fault in faults] == [
        (10 * S, 4 * S), (20 * S, 4 * S), (30 * S, 4 * S),
    ]  # fmt: skip
    (once,) = plan("kill leader at 500ms for 1s")
    assert (once.at_ns, once.duration_ns) == (S // 2, S)


def test_instant_faults_need_no_length():
    assert parse("do step-down on leader every 10s").schedule.every_ns == 10 * S
    assert parse("reset one from others at 3s").schedule.at_ns == 3 * S


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("do jump on leader", "jump"),
        ("do step-down on leader variant=changed", "variant"),
        ("do rolling-restart on all variant=newer", "variant"),
        ("kill node:m9", "m9"),
        ("pause role:boss", "boss"),
        ("kill one@boss", "boss"),
        ("kill boss", "boss"),
    ],
)
def test_words_unknown_to_the_target_are_refused_before_the_start(text, word):
    with pytest.raises(UsageError, match=word):
        plan_case(Case(seed=1, nemeses=(text,)), None)


def test_events():
    late = parse("kill it when event leader nth=2 after=5ms").trigger
    assert (late.nth, late.after_ns, late.where) == (2, 5_000_000, {})
    sentence = parse("kill it when event leader term=3 nth=2 every 10s for 4s")
    assert sentence.trigger == Trigger(event="leader", where={"term": "3"}, nth=2)
    assert sentence.schedule == Schedule(every_ns=10 * S, for_ns=4 * S)
    assert Capability.AIM_AT_EVENTS in sentence.requires
    assert parse("kill one").trigger is None
    once = parse("kill it when event leader for 4s").schedule
    assert once == Schedule(at_ns=0, for_ns=4 * S)


@pytest.mark.parametrize(
    ("kind", "data", "matches"),
    [
        ("leader", {"term": 3, "ready": True}, True),
        ("leader", {"term": "3", "ready": True, "more": None}, True),
        ("leader", {"term": 3}, False),
        ("leader", {"term": 30, "ready": True}, False),
        ("follower", {"term": 3, "ready": True}, False),
    ],
)
def test_an_event_is_known_by_its_fields_as_they_read_in_json(kind, data, matches):
    trigger = Trigger(event="leader", where={"term": "3", "ready": "true"})
    assert trigger.matches(kind, data) is matches


def test_a_fault_after_the_end_and_too_many_of_them_are_refused():
    with pytest.raises(UsageError, match="time-limit"):
        plan("kill leader at 60s for 1s")
    with pytest.raises(UsageError, match="limit"):
        plan("kill leader every 2ms for 1ms")


@pytest.mark.parametrize("args", [{"draw": 7}, {"draw": 2**31 - 1}, {}])
def test_arguments_that_could_have_been_drawn_are_taken(args):
    AimedNemesis.of_text("kill one").check_args(args)


@pytest.mark.parametrize(
    "args", [{"choice": 1}, {"draw": -1}, {"draw": 1.0}, {"draw": True}, {"draw": 2**40}, {"x": 1}]
)
def test_arguments_outside_the_draws_are_refused(args):
    with pytest.raises(UsageError):
        AimedNemesis.of_text("kill one").check_args(args)


def test_a_case_carries_faults_in_words_and_replays(capsys, tmp_path):
    text = "cut leader from members every 3s for 1s"
    command = ["run", "--dry-run", "--env", "sim", "--time-limit", "10", "--seed", "3"]
    assert main([*command, "--nemesis", "kill-leader", "--fault", text]) == 0
    written = capsys.readouterr().out
    case = json.loads(written)
    assert case["nemeses"] == ["kill-leader", text]
    assert sum(fault["nemesis"] == text for fault in case["faults"]) == 3
    path = tmp_path / "case.json"
    path.write_text(written)
    assert main(["run", "--dry-run", "--env", "sim", "--case", str(path)]) == 0
    assert capsys.readouterr().out == written


def test_faults_alone_are_all_that_strikes(capsys):
    assert main(["run", "--dry-run", "--env", "sim", "--seed", "3", "--fault", "kill one"]) == 0
    assert json.loads(capsys.readouterr().out)["nemeses"] == ["kill one"]


def test_names_and_sentences_are_distinguished():
    assert load_nemesis("kill-leader").name == "kill-leader"
    assert load_nemesis("kill leader").name == "kill leader"
    with pytest.raises(UsageError):
        load_nemesis("kill-boss")
