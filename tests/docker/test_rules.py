"""The text of packet filter rules, and the shell script that deletes them (no filter needed)."""

import os
import stat
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cluster import CLIENT, Link, LinkQuality, is_client
from harness.environments.docker.network import packets, rules
from harness.errors import InternalError
from tests.tiers import examples

ADDRESSES = {"m1": "10.1.2.10", "m2": "10.1.2.11", "m10": "10.1.2.12", "1": "10.1.2.13",
             CLIENT: "10.1.2.1", "client:1": "10.1.2.110", "client:10": "10.1.2.119"}  # fmt: skip
NODES = sorted(name for name in ADDRESSES if not is_client(name))
FAULTS = ["cut-1", "cut-10", "cut-2"]

links = st.tuples(st.sampled_from(sorted(ADDRESSES)), st.sampled_from(sorted(ADDRESSES))).filter(
    lambda ends: ends[0] != ends[1]
)


def saved_line(fault, link, packets, *, drop):
    chain = "OUTPUT -d" if is_client(link.destination) else "INPUT -s"
    target = " -j DROP" if drop else ""
    return (
        f"[{packets}:{packets * 60}] -A {chain} 10.0.0.1/32 -m comment "
        f'--comment "{rules.mark(fault, link)}"{target}'
    )


def test_a_cut_is_made_where_it_arrives_and_towards_clients_where_it_leaves():
    for table in (rules.Table.CUT, rules.Table.SHAPE):
        assert rules.owners(Link("m1", "m2"), table) == ("m2",)
        assert rules.owners(Link(CLIENT, "m2"), table) == ("m2",)
        assert rules.owners(Link("m2", CLIENT), table) == ("m2",)
        assert rules.owners(Link("m2", "client:1"), table) == ("m2",)

    command = rules.cut_command("f", [Link("m1", "m2"), Link("m2", CLIENT)], ADDRESSES)

    assert command[4:] == [
        '--comment "harness:f:',
        '-I INPUT 1 -s 10.1.2.10/32 ! -i lo -m comment --comment "harness:f:m1>m2"',
        '-A INPUT -s 10.1.2.10/32 ! -i lo -m comment --comment "harness:f:m1>m2" -j DROP',
        '-I OUTPUT 1 -d 10.1.2.1/32 -m comment --comment "harness:f:m2>client"',
        '-A OUTPUT -d 10.1.2.1/32 -m comment --comment "harness:f:m2>client" -j DROP',
    ]


def test_a_shaped_link_counts_then_marks_and_queues_last():
    quality = LinkQuality(delay_ms=200, drop=0.25)

    command = rules.shape_command("shape-1", [Link("m1", "m2")], quality, 4, ADDRESSES)

    match, comment = "-s 10.1.2.10/32 ! -i lo", '-m comment --comment "harness:shape-1:'
    assert command[4] == '--comment "harness:shape-1:'
    assert command[6] == ""  # no packet is duplicated
    assert command[7:] == [
        f'-I INPUT 1 {match} {comment}m1>m2"',
        f'-I INPUT 1 {match} {comment}del=200,dro=0.25:m1>m2" -j MARK --set-xmark 0x4/0x4',
        f'-A INPUT {match} {comment}m1>m2" -j NFQUEUE --queue-num {packets.QUEUE} --queue-bypass',
    ]


def test_duplicates_are_copied_once_and_after_all_cuts(packet_filter):
    quality = LinkQuality(duplicate=0.1)
    for link, to in ((Link("m1", "m2"), "10.1.2.11"), (Link("m2", CLIENT), "10.1.2.11")):
        command = rules.shape_command("shape-1", [link], quality, 1, ADDRESSES)
        assert command[6].splitlines()[2:] == [
            f"-A INPUT ! -i lo -m mark --mark 0x80000000/0x80000000 -j TEE --gateway {to}",
            *(
                f"-A OUTPUT ! -o lo -d {address}/32 -m mark --mark 0x80000000/0x80000000 "
                f"-j TEE --gateway {address}"
                for end, address in ADDRESSES.items()
                if is_client(end)
            ),
        ]
        unmarked = " -m mark ! --mark 0x80000000/0x80000000 "
        assert [unmarked in rule for rule in command[7:]] == 3 * [link.destination == CLIENT]
    restored = packet_filter.folder / "tables"
    packet_filter.write("iptables-restore", f'cat >>"{restored}"')
    command[2] = command[2].replace(rules._SERVED, "true")
    done, _ = packet_filter.run(command)
    assert done.returncode == 0
    copies, shapes = command[6].splitlines(), command[7:]
    expected = ["*security", *copies, "COMMIT", "*mangle", *shapes, "COMMIT"]
    assert restored.read_text().splitlines() == expected


def test_the_program_reads_from_the_rules_what_was_asked():
    worst = LinkQuality(
        delay_ms=1.5,
        jitter_ms=2e5,
        drop=0.05,
        duplicate=0.5,
        reorder=1e-3,
        rate_kb_s=64,
        stall=True,
    )
    mild = LinkQuality(jitter_ms=3)
    lines = [
        *rules.shape_command("shape-1", [Link("m1", "m2")], worst, 1, ADDRESSES)[7:],
        *rules.shape_command("shape-2", [Link("m1", "m2")], mild, 1 << 30, ADDRESSES)[7:],
        *rules.shape_command("shape-2", [Link("m2", CLIENT)], mild, 1 << 30, ADDRESSES)[7:],
        *rules.cut_command("cut-3", [Link("m1", "m2")], ADDRESSES)[5:],
    ]
    saved = "\n".join(f"{line.replace(' 1 -', ' -').replace('-I', '-A')}" for line in lines)

    asked = packets.Quality(1.5, 2e5, 0.05, 0.5, 1e-3, 64, 1)
    assert packets.meaning_of(saved) == {
        packets.Flow("INPUT", "10.1.2.10"): {1: asked, 1 << 30: packets.Quality(jitter_ms=3)},
        packets.Flow("OUTPUT", "10.1.2.1"): {1 << 30: packets.Quality(jitter_ms=3)},
    }


def test_the_longest_names_leave_room_for_the_quality():
    names = ["n" * 63, "m" * 63]
    addresses = dict.fromkeys([*names, CLIENT], "10.255.255.254")
    worst = LinkQuality(
        delay_ms=1.23456789e8,
        jitter_ms=1.23456789e8,
        drop=1.23456789e-5,
        duplicate=1.23456789e-5,
        reorder=1.23456789e-5,
        rate_kb_s=123456789,
        stall=True,
    )
    # This raises an error if the comment is too long.
    rules.shape_command("shape-99999", [Link(*names)], worst, 1, addresses)


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a>b", "a:b", "a\nb", "$(x)"])
def test_names_that_could_break_out_of_a_rule_are_refused(name):
    with pytest.raises(InternalError):
        rules.mark(name, Link("m1", "m2"))
    with pytest.raises(InternalError):
        rules.mark("f", Link(name, "m2"))


def table_of(counts):
    """Return the output of `iptables-save -c` for cuts with these counts."""
    lines = ["# Generated by iptables-save", "*filter", ":INPUT ACCEPT [12:34]"]
    for (fault, link), count in counts.items():
        lines.append(saved_line(fault, link, count, drop=False))
        lines.append(saved_line(fault, link, count + 5, drop=True))
    lines.append("[7:420] -A INPUT -s 10.9.9.9/32 -j DROP")
    return "\n".join([*lines, "COMMIT", ""])


class FakeFilter:
    """Programs with the names of the packet filter's, first on PATH, that keep rules in a file."""

    def __init__(self, folder):
        self.folder = folder
        self.write("iptables-save", f'cat "{folder}/saved"')
        self.write(
            "iptables-restore",
            f"""cat >"{folder}/restored"
            awk 'NR == FNR {{ if (sub(/^-D/, "-A")) gone[$0]; else if (/^[-:]/) made[$0]; next }}
                 {{ rule = $0; sub(/^\\[[0-9:]*\\] /, "", rule); if (!(rule in gone)) print }}
                 END {{ for (rule in made) print rule }}' "{folder}/restored" "{folder}/saved" \\
              >"{folder}/left" && mv "{folder}/left" "{folder}/saved" """,
        )

    def write(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, command, saved=""):
        if saved is not None:
            (self.folder / "saved").write_text(saved)
        (self.folder / "restored").write_text("nothing")
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done, (self.folder / "restored").read_text()


@pytest.fixture
def packet_filter(tmp_path):
    return FakeFilter(tmp_path)


def test_the_shell_hands_a_cut_over_line_by_line(packet_filter):
    command = rules.cut_command("f", [Link("m1", "m2")], ADDRESSES)

    done, restored = packet_filter.run(command)

    assert done.returncode == 0
    assert restored.splitlines() == ["*filter", *command[5:], "COMMIT"]


def test_a_cut_that_is_made_again_goes_on_counting(packet_filter):
    command = rules.cut_command("cut-1", [Link("m1", "m2")], ADDRESSES)

    for other, made in (("cut-1", False), ("cut-10", True)):
        saved = table((other, Link("m1", "m2")))
        done, restored = packet_filter.run(command, saved)
        assert done.returncode == 0
        assert (restored != "nothing") == made


def table(*entries):
    return table_of(dict.fromkeys(entries, 3))


def deleted(restored):
    return [line for line in restored.splitlines() if line.startswith("-D")]


@given(
    counts=st.dictionaries(
        st.tuples(st.sampled_from(FAULTS), links.map(lambda ends: Link(*ends))),
        st.integers(0, 2**63),
        max_size=8,
    ),
    fault=st.sampled_from(FAULTS),
)
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_healed_rules_had_counted_is_said_as_often_as_it_is_asked(
    packet_filter, counts, fault
):
    heal = rules.heal_command(rules.select_fault(fault))
    others = [rules.heal_command(rules.select_fault(name)) for name in FAULTS if name != fault]

    first, _ = packet_filter.run(heal, table_of(counts))
    outputs = [packet_filter.run(command, None)[0].stdout for command in (*others, heal)]

    expected = {key: count for key, count in counts.items() if key[0] == fault}
    assert rules.counted_packets(first.stdout) == expected
    assert rules.counted_packets(outputs.pop()) == expected
    assert rules.counted_packets("".join(outputs)) == {
        key: count for key, count in counts.items() if key[0] != fault
    }
    assert "harness:cut-" not in (packet_filter.folder / "saved").read_text().replace(
        ":harness:", ""
    )


def test_healing_links_of_a_fault_leaves_its_other_links_and_other_faults(packet_filter):
    saved = table(
        ("cut-1", Link("m1", "m2")),
        ("cut-2", Link("m1", "m2")),
        ("cut-2", Link("m10", "m2")),
        ("cut-2", Link(CLIENT, "m2")),
    )
    patterns = rules.select_links("cut-2", [Link("m1", "m2"), Link(CLIENT, "m2")], [])

    _, restored = packet_filter.run(rules.heal_command(patterns), saved)

    assert len(deleted(restored)) == 4
    assert not any("m10" in line or "cut-1" in line for line in deleted(restored))


def test_no_client_is_taken_for_a_node_that_has_its_number():
    (pattern,) = rules.select_links("cut-1", [Link("1", "m2")], [])
    assert pattern in f'"{rules.mark("cut-1", Link("1", "m2"))}"'
    assert pattern not in f'"{rules.mark("cut-1", Link("client:1", "m2"))}"'


def test_nothing_to_heal_is_success_and_changes_nothing(packet_filter):
    command = rules.heal_command(rules.select_fault("cut-9"))

    done, restored = packet_filter.run(command, table(("cut-1", Link("m1", "m2"))))

    assert done.returncode == 0
    assert restored == "nothing"


def test_healing_a_shape_deletes_its_three_rules_and_says_whether_it_was_held(packet_filter):
    link = Link("m1", "m2")
    lines = rules.shape_command("shape-1", [link], LinkQuality(stall=True), 1, ADDRESSES)[7:]
    saved = "".join(f"[7:70] {line.replace(' 1 -', ' -').replace('-I', '-A')}\n" for line in lines)
    says = [rules.text_of(LinkQuality(stall=True))]
    for patterns in (
        rules.select_fault("shape-1"),
        rules.select_links("shape-1", [link], says),
    ):
        done, restored = packet_filter.run(rules.heal_command(patterns, rules.Table.SHAPE), saved)

        assert done.returncode == 0
        assert restored.splitlines()[0] == "*mangle"
        assert len(deleted(restored)) == 3
        assert rules.counted_packets(done.stdout) == {("shape-1", link): 7}
        assert not rules.is_served(done.stdout, rules.Table.SHAPE)
    assert rules.is_served("queue 4077 395 0 2 20 0 0 0 1\n", rules.Table.SHAPE)


def test_healing_streams_removes_toxics_by_the_same_patterns(packet_filter):
    packet_filter.write("python3", 'shift 4; printf "%s\n" "ran $*"')
    patterns = rules.select_fault("stream-1")
    for table in rules.Table:
        done, _ = packet_filter.run(rules.heal_command(patterns, table), "")
        assert done.returncode == 0
        ran = [line for line in done.stdout.splitlines() if line.startswith("ran")]
        assert ran == (["ran heal -e harness:stream-1:"] if table is rules.Table.STREAM else [])


def test_a_kernel_without_queues_is_found_out(packet_filter):
    command = rules.probe_command()
    queues = packet_filter.folder / "queues"
    command[2] = command[2].replace(rules._QUEUES, str(queues))
    packet_filter.write("python3", "echo no nfnetlink_queue >&2; exit 1")

    done, restored = packet_filter.run(command)
    assert (done.returncode, done.stderr) == (1, "no nfnetlink_queue\n")
    assert restored.splitlines()[0] == "*mangle"
    queues.touch()
    assert packet_filter.run(command)[0].returncode == 0
    packet_filter.write("iptables-restore", "exit 2")  # as if the module xt_NFQUEUE were missing
    assert packet_filter.run(command)[0].returncode == 2


def test_a_filter_that_fails_is_not_taken_for_healed(packet_filter):
    command = rules.heal_command(rules.select_fault("cut-1"))
    packet_filter.write("iptables-restore", "echo no >&2; exit 4")
    done, _ = packet_filter.run(command, table(("cut-1", Link("m1", "m2"))))
    assert done.returncode == 4

    packet_filter.write("iptables-save", "exit 3")
    done, _ = packet_filter.run(command)
    assert done.returncode != 0


def test_connections_before_and_after_a_reset(packet_filter):
    packet_filter.write(
        "ss",
        'case "$*" in *-K*) touch "$0.killed"; exit;; esac\n'
        '[ -e "$0.killed" ] || echo "0 0 10.1.2.11:7051 10.1.2.10:40000"\n'
        'echo "0 5 10.1.2.11:7051 10.1.2.10:40001"\n'
        '[ ! -e "$0.killed" ] || echo "0 0 10.1.2.11:7051 10.1.2.10:40002"\n',
    )

    listed, _ = packet_filter.run(rules.list_command(["10.1.2.10"]))
    reset, _ = packet_filter.run(rules.reset_command(["10.1.2.10"]))

    before, after = rules.connections(listed.stdout), rules.connections(reset.stdout)
    # 40001 could not be reset, and 40002 was opened after the reset.
    assert before - after == {"10.1.2.11:7051 10.1.2.10:40000"}
    assert before & after == {"10.1.2.11:7051 10.1.2.10:40001"}
