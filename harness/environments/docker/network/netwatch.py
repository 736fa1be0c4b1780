"""A program in a node's network namespace: reports changes that the harness did not make.

`outsiders` passes this source on a command line (`python3 -c`) into the node's keeper, the
container that owns the namespace. So it imports only the standard library. The program starts when
it reads a byte from standard input, and exits when standard input ends. It sleeps until the kernel
reports a change.

The state is a set of short texts: the links with their flags, the addresses, the routes, and the
packet filter rules that are neither the harness's nor Docker's. The program prints one JSON object
per line. The first has the state. Each later one has the texts that were removed and added since
the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

_NETLINK_ROUTE, _NETLINK_NETFILTER = 0, 12
# RTNLGRP_LINK, RTNLGRP_TC, RTNLGRP_IPV4_IFADDR and RTNLGRP_IPV4_ROUTE in linux/rtnetlink.h.
_ROUTE_GROUPS = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 6
_GROUP_NFTABLES = 1 << 6  # NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h
_SUBSYSTEM_NFTABLES = 10 << 8
_NEW_TABLE, _GET_TABLE = _SUBSYSTEM_NFTABLES, _SUBSYSTEM_NFTABLES | 1
_DUMP = 0x301  # NLM_F_REQUEST and NLM_F_DUMP
_DONE, _ERROR = 3, 2
_TABLE_NAME = 1  # NFTA_TABLE_NAME
_FAMILY_IPV4 = 2
_READ_BYTES = 1 << 16
_SETTLE_S = 0.05  # one change causes several notifications, so wait before reading the state
_COMMAND_S = 10.0
_FAILURES_MAX = 5

_IPTABLES = ("filter", "mangle", "nat", "raw", "security")
_OURS = re.compile(
    r'--comment "(\d+:)?harness:'  # active rules of the harness, and the counts of deleted ones
    r"| --mark 0x80000000/0x80000000 -j TEE "  # the rules by which the harness duplicates packets
    r"|^-A harness-probe |DOCKER_"
)
_LINK = re.compile(r"^\d+: ([^:@]+)(?:@\S+)?: <([^>]*)> mtu (\d+) qdisc (\S+)")


def links_of(text: str) -> Iterator[str]:
    """Return one text for each relevant property of each link in the output of `ip -o link`."""
    for match in filter(None, map(_LINK.match, text.splitlines())):
        name, flags, mtu, queue = match.groups()
        yield from (
            f"link {name} {flag}" for flag in ("UP", "LOWER_UP") if flag in flags.split(",")
        )
        yield f"link {name} mtu {mtu} qdisc {queue}"


def addresses_of(text: str) -> Iterator[str]:
    """Return one text for each address in the output of `ip -o -4 address`."""
    rows = (line.split() for line in text.splitlines())
    return (f"address {row[3]} of {row[1]}" for row in rows if len(row) > 3)


def routes_of(text: str) -> Iterator[str]:
    """Return one text for each route in the output of `ip -4 route`."""
    return (f"route {' '.join(line.split())}" for line in text.splitlines() if line.strip())


def rules_of(text: str) -> Iterator[str]:
    """Return other programs' rules, and the policies, in the output of `iptables-save`."""
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith("-A ") and not _OURS.search(line):
            yield f"rule {table} {line}"
        elif line.startswith(":") and " ACCEPT " not in line and " - " not in line:
            chain, policy = line[1:].split()[:2]
            yield f"policy {table} {chain} {policy}"
        elif line.startswith("# Table") or "legacy tables" in line:
            yield f"note {line.lstrip('# ')}"  # the line names tables that iptables-save left out


def tables_of(messages: bytes) -> Iterator[str]:
    """Return the nftables tables in the kernel's answer, without the ones of iptables."""
    for kind, body in _messages(messages):
        if kind == _NEW_TABLE:
            # the header nfgenmsg comes first
            family, name = body[0], _attribute(body[4:], _TABLE_NAME)
            if family != _FAMILY_IPV4 or name not in _IPTABLES:
                yield f"table {name} of family {family}"


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 16 <= len(data):
        size, kind = struct.unpack_from("=IH", data, at)
        if size < 16:
            return
        yield kind, data[at + 16 : at + size]
        at += (size + 3) & ~3


def _attribute(body: bytes, wanted: int) -> str:
    at = 0
    while at + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, at)
        if kind & 0x3FFF == wanted:
            return body[at + 4 : at + size].rstrip(b"\0").decode("utf-8", "replace")
        at += max(4, (size + 3) & ~3)
    return ""


def differences(before: Iterable[str], now: Iterable[str]) -> dict[str, list[str]]:
    """Return the strings only in `before` ("gone") and the strings only in `now` ("new")."""
    old, new = set(before), set(now)
    return {"gone": sorted(old - new), "new": sorted(new - old)}


def _output_of(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_COMMAND_S, errors="replace"
    )
    return done.stdout + done.stderr


def _all_tables() -> Iterator[str]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(_COMMAND_S)
        kernel.send(struct.pack("=IHHIIBBH", 20, _GET_TABLE, _DUMP, 1, 0, 0, 0, 0))
        data = b""
        while not any(kind in {_DONE, _ERROR} for kind, _ in _messages(data)):
            data = kernel.recv(_READ_BYTES)
            yield from tables_of(data)


def _interfaces() -> set[str]:
    return {
        *links_of(_output_of("ip", "-o", "link")),
        *addresses_of(_output_of("ip", "-o", "-4", "address")),
        *routes_of(_output_of("ip", "-4", "route")),
        f"namespace {os.stat('/proc/self/ns/net').st_ino}",  # noqa: PTH116 - no pathlib here
    }


def _filters() -> set[str]:
    return {*rules_of(_output_of("iptables-save")), *_all_tables()}


def _notices(protocol: int, groups: int) -> socket.socket:
    source = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    source.bind((0, groups))
    source.setblocking(False)
    return source


def _drain(source: socket.socket) -> None:
    try:
        while source.recv(_READ_BYTES):
            pass
    except BlockingIOError:
        pass
    except OSError:  # ENOBUFS: some notices are lost, but the whole state is read next
        pass


def _say(**lists: list[str]) -> None:
    sys.stdout.write(json.dumps(lists) + "\n")
    sys.stdout.flush()


def watch(first: list[str] | None) -> None:
    """Print how the state differs from `first` after each change, until the input ends.

    If `first` is `None`, it is the present state, which is printed before.
    """
    looks = {_notices(_NETLINK_ROUTE, _ROUTE_GROUPS): _interfaces}
    # Without nftables, there are no rules to watch, and the harness cannot cut links.
    with contextlib.suppress(OSError):
        looks[_notices(_NETLINK_NETFILTER, _GROUP_NFTABLES)] = _filters
    sys.stdin.buffer.read(1)
    seen: dict[socket.socket, set[str]] = {}
    reported: dict[str, list[str]] | None = None
    stale, failures = list(looks), 0
    while True:
        for source in stale:
            _drain(source)
            try:
                seen[source] = looks[source]()
            except (OSError, subprocess.SubprocessError) as error:
                failures += 1  # in a row: a busy kernel may refuse one query
                if failures > _FAILURES_MAX:
                    sys.stderr.write(f"{error}\n")
                    return
                time.sleep(1.0)
                break
        else:
            failures = 0
            now = sorted(set().union(*seen.values()))
            if first is None:
                first = now
                _say(state=now)
            differs = differences(first, now)
            if differs != reported:
                reported = differs
                _say(**differs)
            readable, _, _ = select.select([*looks, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            time.sleep(_SETTLE_S)
            stale = [source for source in looks if source in readable]


if __name__ == "__main__":
    watch(json.loads(sys.argv[1]) if sys.argv[1:] else None)
