"""`harness list`: every plug-in with its one-line doc, and what each environment can do."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cluster import ENV_NODES_ONLY, FAULTY_DISK, Capability, Fidelity
from harness.environments.fuse.available import why_missing
from harness.errors import UsageError
from harness.faults.words import EXAMPLES, parse
from harness.planning import reaches_foreign
from harness.plugins import Environment
from harness.registry import GROUPS, load_all

__all__ = ["main"]

_FOREIGN: Final = ", foreign"


def main(arguments: Sequence[str]) -> int:
    """Print the lists; a broken plug-in is one line of its list, not a failure."""
    parser = Parser(
        prog="harness list",
        description="List plug-ins and what each environment can do to a cluster.",
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
            if entry.get("profiles"):
                say(f"    profiles: {', '.join(entry['profiles'])}")
            for bug, text in entry.get("bugs", {}).items():
                say(f"    --bug {bug:20} {text}")
        say("")
    _print_faults()
    return 0


def _entries(group: str) -> list[dict[str, Any]]:
    entries = []
    for name, plugin in load_all(group):
        if isinstance(plugin, UsageError):
            entries.append({"name": name, "doc": f"BROKEN: {plugin}"})
            continue
        entry: dict[str, Any] = {"name": name, "doc": plugin.doc}
        if group == "environments":
            able = plugin.capabilities
            entry["capabilities"] = _fidelities(able)
            if hasattr(plugin, "reaches_foreign"):
                entry["capabilities_foreign"] = _fidelities(_of_foreign(plugin))
        if group == "targets":
            entry["profiles"] = list(plugin.profiles)
            entry["bugs"] = dict(plugin.bugs)
        entries.append(entry)
    return entries


def _of_foreign(environment: Environment) -> Mapping[Capability, Fidelity]:
    """What it can do to foreign programs; to disks, of those that have one of ours."""
    beyond = ENV_NODES_ONLY
    if hasattr(environment, "why_no_faulty_disks"):
        beyond -= FAULTY_DISK
    able = {what: how for what, how in environment.capabilities.items() if what not in beyond}
    return able | dict(reaches_foreign(environment))


def _fidelities(able: Mapping[Capability, Fidelity]) -> dict[str, str]:
    return {item.value: able.get(item, Fidelity.NONE).value for item in Capability}


def _print_faults() -> None:
    """Which fault works where, by what each needs and each environment says it can do.

    Foreign programs have columns of their own: their disks and clocks are not the harness's.
    """
    able: dict[str, Mapping[Capability, Fidelity]] = {}
    for name, environment in load_all("environments"):
        if not isinstance(environment, UsageError):  # said above
            able[name] = environment.capabilities
            if hasattr(environment, "reaches_foreign"):
                able[f"{name}{_FOREIGN}"] = _of_foreign(environment)
    say("faults (--fault), and where they work:")
    say(f"  {'':40} {' '.join(f'{name:16}' for name in able)}".rstrip())
    for text in EXAMPLES:
        needs = parse(text).requires
        cells = []
        for name, capabilities in able.items():
            cell = _fidelity(needs, capabilities)
            own = name.endswith(_FOREIGN) and not needs.isdisjoint(FAULTY_DISK)
            cells.append(f"{'faulty disk' if own else cell:16}")
        say(f"  {text:40} {' '.join(cells)}".rstrip())
    here = why_missing() or "can be had here"
    say(f"  faulty disk: where the node declares one (NodeSpec.faulty_disk); {here}")


def _fidelity(needs: Iterable[Capability], able: Mapping[Capability, Fidelity]) -> str:
    """How well it works: as well as what works worst of all it needs."""
    found = [able.get(need, Fidelity.NONE) for need in needs]
    return max(found, key=list(Fidelity).index).value
