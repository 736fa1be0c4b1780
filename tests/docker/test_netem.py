"""Link qualities are converted into arguments of the kernel's network emulator."""

import pytest

from harness.cluster import CLIENT, Link, LinkQuality
from harness.environments.docker.network import netem, rules
from tests.docker.test_rules import ADDRESSES, FakeFilter

SHOWN = """\
qdisc htb 4077: root refcnt 2 r2q 10 default 0 direct_packets_stat 9 direct_qlen 1000
 Sent 3200 bytes 39 pkt (dropped 4, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
qdisc netem 1: parent 4077:1 limit 65536 delay 200ms
 Sent 1984 bytes 21 pkt (dropped 4, overlimits 0 requeues 0)
 backlog 98b 1p requeues 0
qdisc netem a: parent 4077:a limit 65536 loss 25%
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
"""


@pytest.mark.parametrize(
    ("quality", "expected"),
    [
        (LinkQuality(delay_ms=200), "limit 65536 delay 200.000ms"),
        (LinkQuality(delay_ms=10, jitter_ms=4), "delay 12.000ms 2.000ms rate 32gbit"),
        (LinkQuality(drop=0.25), "limit 65536 loss random 25.000000%"),
        (LinkQuality(duplicate=0.05), "limit 65536 duplicate 5.000000%"),
        (LinkQuality(reorder=0.1), "delay 20.000ms reorder 90.000000%"),
        (LinkQuality(reorder=0.1, delay_ms=5), "delay 5.000ms reorder 10.000000%"),
        (LinkQuality(rate_kb_s=64), "limit 43 rate 512000bit"),
        (LinkQuality(rate_kb_s=1, drop=0.5), "limit 16 loss random 50.000000% rate 8000bit"),
    ],
)
def test_a_quality_in_the_words_of_the_kernel(quality, expected):
    assert netem.parameters(quality).endswith(expected)


def test_stalls_and_links_from_clients_stay_with_the_program():
    slow = LinkQuality(delay_ms=1)
    assert netem.reaches(Link("m1", "m2"), slow)
    assert netem.reaches(Link("m1", CLIENT), slow)
    assert not netem.reaches(Link(CLIENT, "m1"), slow)
    assert not netem.reaches(Link("m1", "m2"), LinkQuality(stall=True))


@pytest.fixture
def kernel(tmp_path):
    """Provide a packet filter, and a `tc` that records its arguments in `asked`."""
    programs = FakeFilter(tmp_path)
    programs.write("tc", f'echo "$@" >>"{tmp_path}/asked"; case "$*" in *-batch*) cat;; esac')
    return programs


def test_classes_are_set_below_a_root_that_is_made_once(kernel):
    classes = {1: (0x1, LinkQuality(delay_ms=1)), 10: (0x5, LinkQuality(drop=0.5))}
    done, _ = kernel.run(netem.set_command(classes))
    assert done.returncode == 0
    asked = (kernel.folder / "asked").read_text().splitlines()
    assert [line.split()[:2] for line in asked] == [
        ["qdisc", "show"],
        ["qdisc", "add"],
        ["-batch", "-"],
    ]
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("class replace dev eth0 parent 4077: classid 4077:1 htb ")
    assert last == (
        "filter replace dev eth0 parent 4077: protocol ip prio 1 handle 0x5/0x7fffffff fw "
        "classid 4077:a"
    )
    kernel.write("tc", 'case "$2" in show) echo "qdisc htb 4077: root";; *) exit 9;; esac')
    assert kernel.run(netem.prepare_command())[0].returncode == 0


def test_marks_are_set_and_counted_where_packets_leave(kernel):
    done, restored = kernel.run(rules.mark_command("shape-1", [Link("m1", "m2")], 4, ADDRESSES))
    assert done.returncode == 0
    match = '-d 10.1.2.11/32 -m comment --comment "harness:shape-1:m1>m2"'
    assert restored.splitlines() == [
        "*mangle",
        f"-I OUTPUT 1 {match}",
        f"-A OUTPUT {match} -j MARK --set-xmark 0x4/0x4",
        "COMMIT",
    ]


def test_packets_that_were_sent_or_dropped_are_counted_by_class():
    assert netem.met_packets(SHOWN) == {1: 25, 10: 0}
    assert netem.met_packets("qdisc noqueue 0: root refcnt 2\n") == {}


def test_a_kernel_without_the_emulator_is_found_out(kernel):
    assert kernel.run(netem.probe_command())[0].returncode == 0
    reason = "Error: Specified qdisc kind is unknown."
    kernel.write("tc", f'case "$*" in *-batch*) echo "{reason}" >&2; exit 1;; esac')
    done, _ = kernel.run(netem.probe_command())
    assert (done.returncode, done.stderr.strip()) == (1, reason)
