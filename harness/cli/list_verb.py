"""`harness list`: every plug-in with its one-line doc, and what each environment can do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cluster import Capability, Fidelity
from harness.errors import UsageError
from harness.plugins import GROUPS, load_plugin, plugin_names

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
    _print_capabilities(groups["environments"])
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


def _print_capabilities(environments: list[dict[str, Any]]) -> None:
    usable = [entry for entry in environments if "capabilities" in entry]
    say("what an environment can do:")
    heads = [f"{entry['name']:12}" for entry in usable]
    say(f"  {'':24} {' '.join(heads)}".rstrip())
    for item in Capability:
        cells = [f"{entry['capabilities'][item.value]:12}" for entry in usable]
        say(f"  {item.value:24} {' '.join(cells)}".rstrip())
