"""The program that holds packets back, tested without a kernel."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.environments.docker.network import packets
from harness.environments.docker.network.packets import (
    ACCEPT,
    DROP,
    TWICE,
    Flow,
    Packet,
    Quality,
    Scheduler,
)
from harness.nodes.degradation import LinkQuality

FLOW = Flow("INPUT", "10.1.2.10")
OTHER = Flow("OUTPUT", "10.1.2.1")


def scheduler_of(qualities, draws=None):
    """Build the scheduler of a link with these qualities, whose marks are 1, 2, 4, ...

    Every draw is 0.5 unless `draws` are given.
    """
    values = iter(draws) if draws is not None else iter(lambda: 0.5, None)
    scheduler = Scheduler(lambda: next(values))
    scheduler.learn({FLOW: {1 << at: quality for at, quality in enumerate(qualities)}}, 0.0)
    return scheduler


def packet(number, bits=1, size=1000, flow=FLOW):
    return Packet(number, flow, bits, size)


def releases(scheduler, until_s=1000.0):
    went = []
    while (due_s := scheduler.next_due_s()) is not None and due_s <= until_s:
        went += [(round(due_s, 6), number) for number, _ in scheduler.verdicts(due_s)]
    return went


def test_a_delayed_packet_waits_as_long_as_was_asked():
    scheduler = scheduler_of([Quality(delay_ms=200)])
    scheduler.arrive(packet(1), 10.0)
    assert scheduler.verdicts(10.199) == []
    assert scheduler.verdicts(10.2) == [(1, ACCEPT)]
    assert scheduler.next_due_s() is None


def test_jitter_adds_up_to_its_share_and_keeps_the_order():
    # per packet, three draws: whether it is dropped, its jitter, whether it is reordered
    draws = [*(0.9, 1.0, 0.9), *(0.9, 0.0, 0.9), *(0.9, 0.5, 0.9)]
    scheduler = scheduler_of([Quality(delay_ms=100, jitter_ms=50)], draws)
    scheduler.arrive(packet(1), 10.0)
    scheduler.arrive(packet(2), 10.01)
    scheduler.arrive(packet(3), 10.2)
    assert releases(scheduler) == [(10.15, 1), (10.15, 2), (10.325, 3)]


def test_a_drawn_packet_is_dropped_at_once_and_no_other():
    scheduler = scheduler_of([Quality(drop=0.2)], [0.19, 0.2, 0.0, 0.9])
    scheduler.arrive(packet(1), 10.0)
    scheduler.arrive(packet(2), 10.0)
    assert scheduler.verdicts(10.0) == [(1, DROP), (2, ACCEPT)]


def test_a_packet_that_is_drawn_goes_on_twice_and_no_other():
    draws = [*(0.9, 0.0, 0.9, 0.09), *(0.9, 0.0, 0.9, 0.1)]
    scheduler = scheduler_of([Quality(delay_ms=10, duplicate=0.1)], draws)
    for number in (1, 2):
        scheduler.arrive(packet(number), 10.0)
    assert scheduler.verdicts(11.0) == [(1, TWICE), (2, ACCEPT)]


def test_a_reordered_packet_is_overtaken_by_those_behind_it():
    draws = [0.9, 0.0, 0.05] + [0.9, 0.0, 0.1] * 2
    scheduler = scheduler_of([Quality(delay_ms=10, reorder=0.1)], draws)
    for number in (1, 2, 3):
        scheduler.arrive(packet(number), 10.0 + 0.015 * (number - 1))
    assert releases(scheduler) == [(10.025, 2), (10.03, 1), (10.04, 3)]


def test_a_rate_sends_one_after_the_other_and_drops_what_exceeds_the_backlog():
    scheduler = scheduler_of([Quality(rate_kb_s=10)])
    for number in range(100):
        scheduler.arrive(packet(number), 10.0)
    dropped = [number for number, verdict in scheduler.verdicts(10.0) if verdict == DROP]
    went = releases(scheduler)
    # The backlog is 24 kB, more than a second's worth: 24 packets wait and one is being sent.
    assert went == [(round(10.1 + 0.1 * number, 6), number) for number in range(25)]
    assert dropped == list(range(25, 100))
    scheduler.arrive(packet(200), 20.0)  # an idle link has no backlog
    assert releases(scheduler) == [(20.1, 200)]


def test_a_stall_holds_everything_until_it_is_over():
    scheduler = scheduler_of([Quality(stall=1), Quality(delay_ms=100)])
    scheduler.arrive(packet(1, bits=2), 10.0)
    scheduler.arrive(packet(2, bits=3), 10.0)
    scheduler.arrive(packet(3, bits=1), 10.0)
    assert scheduler.verdicts(500.0) == [(1, ACCEPT)]
    scheduler.learn({FLOW: {2: Quality(delay_ms=100)}}, 500.0)
    assert scheduler.verdicts(500.0) == [(2, ACCEPT), (3, ACCEPT)]


def test_a_stall_goes_on_when_another_fault_on_the_link_is_healed():
    scheduler = scheduler_of([Quality(stall=1), Quality(delay_ms=100)])
    scheduler.arrive(packet(1, bits=3), 10.0)
    scheduler.learn({FLOW: {1: Quality(stall=1)}}, 11.0)
    assert scheduler.verdicts(500.0) == []
    scheduler.learn({}, 501.0)
    assert scheduler.verdicts(501.0) == [(1, ACCEPT)]


def test_packets_held_by_a_healed_fault_continue_at_once():
    scheduler = Scheduler(lambda: 0.5)
    slow = {1: Quality(delay_ms=5000)}
    scheduler.learn({FLOW: slow, OTHER: slow}, 0.0)
    scheduler.arrive(packet(1), 10.0)
    scheduler.arrive(packet(2, flow=OTHER), 10.0)
    scheduler.learn({OTHER: slow}, 11.0)
    assert scheduler.verdicts(11.0) == [(1, ACCEPT)]
    assert scheduler.verdicts(15.0) == [(2, ACCEPT)]


def test_a_packet_of_an_unknown_fault_waits_for_the_rules():
    scheduler = Scheduler(lambda: 0.5)
    scheduler.arrive(packet(1), 10.0)
    scheduler.arrive(packet(2, bits=2), 10.0)
    assert scheduler.puzzled
    assert scheduler.verdicts(10.0) == []
    scheduler.learn({FLOW: {1: Quality(delay_ms=100)}}, 10.1, latest=False)
    assert scheduler.verdicts(10.2) == [(1, ACCEPT)]
    assert scheduler.puzzled
    # the delay of the second packet is over by then
    scheduler.learn({FLOW: {1: Quality(delay_ms=100)}}, 10.3)
    assert scheduler.verdicts(10.3) == [(2, ACCEPT)]
    assert not scheduler.puzzled


qualities = st.builds(
    Quality,
    delay_ms=st.floats(0, 1e6),
    jitter_ms=st.floats(0, 1e6),
    drop=st.floats(0, 1),
    duplicate=st.floats(0, 1),
    reorder=st.floats(0, 1),
    rate_kb_s=st.integers(0, 10**9).map(float),
    stall=st.sampled_from([0.0, 1.0]),
)


@given(st.lists(qualities, max_size=4))
def test_faults_on_one_link_combine_as_in_the_simulation(several):
    ours = packets.combined(several)
    theirs = LinkQuality.together(
        [
            LinkQuality(**{**q._asdict(), "rate_kb_s": int(q.rate_kb_s), "stall": q.stall > 0})
            for q in several
        ]
    )
    assert ours == Quality(*(float(getattr(theirs, name)) for name in Quality._fields))


@given(qualities)
def test_a_quality_survives_its_way_through_a_comment(quality):
    again = packets.quality_of(packets.text_of(quality))
    assert again == pytest.approx(quality, rel=1e-5)


@given(
    qualities=st.lists(qualities.filter(lambda q: q.delay_ms + q.jitter_ms < 1e5), max_size=3),
    arrivals=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 7)), max_size=30),
    healed=st.floats(0, 20),
)
def test_every_packet_gets_one_verdict(qualities, arrivals, healed):
    draws = iter([])
    scheduler = Scheduler(lambda: next(draws, 0.3))
    scheduler.learn({FLOW: {1 << at: quality for at, quality in enumerate(qualities)}}, 0.0)
    printed = []
    for number, (at_s, bits) in enumerate(sorted(arrivals)):
        scheduler.arrive(packet(number, bits=bits), at_s)
        if at_s > healed:
            scheduler.learn({}, at_s)
        printed += scheduler.verdicts(at_s)
    scheduler.learn({}, 30.0)
    printed += scheduler.verdicts(1e6)
    assert sorted(number for number, _ in printed) == list(range(len(arrivals)))


# --- netlink messages of a little-endian machine, as strace shows them ------------------------

needs_little_endian = pytest.mark.skipif(
    struct.pack("=H", 1) != b"\x01\x00", reason="the bytes here are a little-endian machine's"
)


@needs_little_endian
def test_a_verdict_as_the_kernel_reads_it():
    assert packets.verdict_message(0x01020304, ACCEPT) == bytes.fromhex(
        "20000000 0103 0100 00000000 00000000"  # length, NFQNL_MSG_VERDICT, NLM_F_REQUEST
        "00 00 0fed"  # any family, version 0, queue 4077
        "0c00 0200 00000001 01020304"  # NFQA_VERDICT_HDR: NF_ACCEPT, the packet
    )
    assert packets.verdict_message(0x01020304, TWICE) == bytes.fromhex(
        "28000000 0103 0100 00000000 00000000"
        "00 00 0fed"
        "0c00 0200 00000001 01020304"
        "0800 0300 80000000"  # NFQA_MARK: request to copy the packet
    )


@needs_little_endian
def test_binding_the_queue_as_the_kernel_reads_it():
    assert packets.bind_messages() == [
        bytes.fromhex(
            "1c000000 0203 0500 00000000 00000000 00 00 0fed"
            "0800 0100 01 00 0002"  # NFQA_CFG_CMD: bind, AF_INET
        ),
        bytes.fromhex(
            "28000000 0203 0500 00000000 00000000 00 00 0fed"
            "0900 0200 00000014 02 000000"  # NFQA_CFG_PARAMS: 20 bytes of each packet
            "0800 0300 00010000"  # NFQA_CFG_QUEUE_MAXLEN
        ),
    ]


def _told(*attributes):
    body = bytes.fromhex("02 00 0fed") + b"".join(map(bytes.fromhex, attributes))
    return struct.pack("=IHHII", 16 + len(body), 0x300, 0, 0, 0) + body


IP_HEAD = "4500 05dc 0000 4000 4006 0000 0a01020a 0a01020b"
ARRIVING = (
    "0b00 0100 0000002a 0800 01 00",  # NFQA_PACKET_HDR: 42, IPv4, local in
    "0800 0500 00000002",  # an attribute for the interface, which this program ignores
    "0800 0300 00000005",  # NFQA_MARK
    "1800 0a00" + IP_HEAD,
    "0800 0d00 000005dc",  # NFQA_CAP_LEN
)


@needs_little_endian
def test_fields_of_a_packet_from_the_kernel():
    leaving = ("0b00 0100 0000002b 0800 03 00", "1800 0a00" + IP_HEAD)
    both = _told(*ARRIVING) + _told(*leaving)

    parsed = [packets.packet_of(kind, body) for kind, body in packets.messages(both)]

    assert parsed == [
        Packet(42, Flow("INPUT", "10.1.2.10"), 5, 1500),
        Packet(43, Flow("OUTPUT", "10.1.2.11"), 0, 20),
    ]


@needs_little_endian
def test_kernel_answers_are_distinguished_from_packets():
    refused = struct.pack("=IHHIIi", 20, 2, 0, 0, 0, -1)
    ((kind, body),) = packets.messages(refused)
    assert packets.error_of(kind, body) == 1
    assert packets.packet_of(kind, body) is None
    assert packets.error_of(0x300, body) is None


@given(st.binary(max_size=80))
def test_no_bytes_make_it_read_forever(data):
    assert len(list(packets.messages(data))) <= len(data) // 16
