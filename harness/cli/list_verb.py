"""`harness list`: every plug-in with its one-line doc, and what each environment can do."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cluster import ENV_NODES_ONLY, FAULTY_DISK, Capability, Fidelity
from harness.environments.fuse.available import why_missing
from harness.errors import UsageError
from harness.faults.words import EXAMPLES, parse
from harness.registry import GROUPS, load_plugin, plugin_names

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Print the lists; a broken plug-in is one line of its list, not a failure."""
    parser = Parser(
        prog="harness list",
        description="List plug-ins and what each environment can do to a cluster.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed: argparse.Namespace = parser.parse_args(list(arguments))
    groups = {group: _entries(group) for group in GROUPS}
    if parsed.json:
        say(msgspec.json.encode({"schema_version": 1, **groups}).decode())
        return 0
    for group, entries in groups.items():
        say(f"{group}:")
        for entry in entries:
            say(f"  {entry['name']:24} {entry['doc']}")
        say("")
    _print_faults()
    return 0


def _entries(group: str) -> list[dict[str, Any]]:
    entries = []
    for name in plugin_names(group):
        try:
            plugin = load_plugin(group, name)
        except UsageError as error:
            entries.append({"name": name, "doc": f"BROKEN: {error}"})
            continue
        entry: dict[str, Any] = {"name": name, "doc": plugin.doc}
        if group == "environments":
            able = plugin.capabilities
            entry["capabilities"] = {
                item.value: able.get(item, Fidelity.NONE).value for item in Capability
            }
        if group == "targets":
            entry["profiles"] = list(plugin.profiles)
            entry["bugs"] = dict(plugin.bugs)
        entries.append(entry)
    return entries


def _print_faults() -> None:
    """Which fault works where, by what each needs and each environment says it can do."""
    able: dict[str, Mapping[Capability, Fidelity]] = {}
    for name in plugin_names("environments"):
        with contextlib.suppress(UsageError):  # said above
            able[name] = load_plugin("environments", name).capabilities
    say("faults (--fault), and where they work:")
    say(f"  {'':40} {' '.join(f'{name:12}' for name in able)} foreign programs")
    for text in EXAMPLES:
        needs = parse(text).requires
        cells = [f"{_fidelity(needs, capabilities):12}" for capabilities in able.values()]
        real = [capabilities for name, capabilities in able.items() if name != "sim"]
        works = any(_fidelity(needs, each) != Fidelity.NONE.value for each in real)
        say(f"  {text:40} {' '.join(cells)} {_reaches_foreign(needs) if works else 'no'}")
    say(f"faulty disks (NodeSpec.faulty_disk): {why_missing() or 'can be had here'}")


def _reaches_foreign(needs: frozenset[Capability]) -> str:
    """Whether a fault reaches programs that are not written against `Env`, in the real world."""
    own = needs & ENV_NODES_ONLY
    if Capability.AIM_AT_EVENTS in needs or not own <= FAULTY_DISK:
        return "no"  # they trace nothing, and their clock is the machine's
    return "on a faulty disk" if own else "yes"


def _fidelity(needs: Iterable[Capability], able: Mapping[Capability, Fidelity]) -> str:
    """How well it works: as well as what works worst of all it needs."""
    found = [able.get(need, Fidelity.NONE) for need in needs]
    return max(found, key=list(Fidelity).index).value
