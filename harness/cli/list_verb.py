"""`harness list`: prints all plug-ins with one line each, and each environment's capabilities."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cli.output import say
from harness.cli.parser import Parser
from harness.cluster import ENV_NODES_ONLY, FAULTY_DISK, Capability, Fidelity
from harness.environments.fuse.available import why_missing
from harness.errors import UsageError, counted
from harness.faults.parser import EXAMPLES, parse
from harness.nodes.deployment import refuse_in_simulation
from harness.plugins import Environment, HistoryModel, Target, TargetSettings
from harness.plugins.options import with_defaults
from harness.registry import (
    GROUPS,
    ExtraMissingError,
    load_all,
    load_plugin,
    load_working,
    plugin_names,
)

_FOREIGN: Final = ", foreign"
ALL: Final = "all"
BUGS: Final = "bugs"
FAULTS: Final = "faults"
_CHOICES: Final = (*(group.replace("_", "-") for group in GROUPS), BUGS, FAULTS, ALL)
_GROUP_HELP: Final = "one of: " + ", ".join(_CHOICES)
_WIDTH: Final = 76
_EPILOG: Final = """examples:
  harness list nemeses
  harness list workloads --target kudu
  harness list bugs --target hive
  harness list all"""


def main(arguments: Sequence[str]) -> int:
    """Print one group of plug-ins or a summary of all groups, including broken plug-ins."""
    parser = Parser(
        prog="harness list",
        description="Without GROUP: count the plug-ins of each group. With GROUP: describe each of "
        "its plug-ins in one line. `all` lists every group.",
        epilog=_EPILOG,
    )
    parser.add_argument("group", nargs="?", metavar="GROUP", choices=_CHOICES, help=_GROUP_HELP)
    parser.add_argument("--target", metavar="NAME", help="only the bugs or workloads of a target")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed: argparse.Namespace = parser.parse_args(list(arguments))
    if parsed.target is not None:
        # raises `UsageError` if the name is unknown
        load_plugin("targets", parsed.target)
        if parsed.group not in {BUGS, "workloads"}:
            raise UsageError(
                f"--target is {parsed.target!r}; it works only with the groups bugs and workloads: "
                f"`harness list bugs --target {parsed.target}`"
            )
    group: str | None = None if parsed.group is None else str(parsed.group).replace("-", "_")
    if parsed.json:
        chosen = [group] if group is not None and group in GROUPS else list(GROUPS)
        if group == FAULTS:
            raise UsageError("--json cannot list faults; drop --json, or list environments")
        if group == BUGS:
            answer: dict[str, Any] = {BUGS: _bugs(parsed.target)}
        else:
            answer = {name: _entries(name) for name in chosen}
        if parsed.target is not None and group == "workloads":
            spoken = load_plugin("targets", parsed.target).vocabularies
            able = {name for name, each in load_working("workloads") if each.vocabulary in spoken}
            answer[group] = [entry for entry in answer[group] if entry["name"] in able]
        say(msgspec.json.encode({"schema_version": 1, **answer}).decode())
        return 0
    if group is None:
        _print_summary()
    elif group == ALL:
        for name in GROUPS:
            _print_group(name)
            say("")
        _print_faults()
    elif group == FAULTS:
        _print_faults()
    elif group == BUGS:
        for name, bugs in _bugs(parsed.target).items():
            say(f"bugs of the target {name} (--bug):")
            for bug, text in bugs.items():
                say(f"  {bug:24} {text}")
    elif group == "workloads":
        _print_workloads(parsed.target)
    else:
        _print_group(group)
    return 0


def _print_summary() -> None:
    for group in GROUPS:
        names = plugin_names(group)
        title = group.replace("_", "-")
        if names:
            say(f"{title:15} {len(names):3}  {_shortened(names)}")
        if group == "targets":
            bugs = [bug for of_target in _bugs(None).values() for bug in of_target]
            say(f"{BUGS:15} {len(bugs):3}  {_shortened(bugs)}")
    say("")
    say("harness list GROUP describes each, e.g. `harness list nemeses`;")
    say("`harness list faults` shows the syntax of --fault and what each environment supports.")


def _shortened(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= _WIDTH else text[:_WIDTH].rpartition(", ")[0] + ", ..."


def _bugs(target: str | None) -> dict[str, dict[str, str]]:
    """Map each target (or only `target`) to its bugs, and each bug to its description."""
    return {name: dict(described.bugs) for name, described in _targets(target) if described.bugs}


def _targets(name: str | None) -> list[tuple[str, Target]]:
    """Return all targets that can be loaded, or only the target with this name."""
    return list(load_working("targets")) if name is None else [(name, load_plugin("targets", name))]


def _print_workloads(target: str | None) -> None:
    """Print each workload with the targets it can run on, and each environment with its targets."""
    targets = dict(_targets(target))
    for name, workload in load_all("workloads"):
        if isinstance(workload, UsageError):
            say(f"{name:16} {_why_not(workload)}")
            continue
        able = [
            each
            for each, candidate in targets.items()
            if workload.vocabulary in candidate.vocabularies
        ]
        if target is None or able:
            say(f"{name:16} {workload.doc}")
            say(f"{'':16} targets: {', '.join(able) or 'none installed'}")
    say("")
    say("environments:")
    simulated = [name for name, candidate in targets.items() if _simulated(candidate)]
    say(f"  sim              {', '.join(simulated) or 'none of them'}")
    say("  process, docker  every target; `harness doctor` shows what works on this machine")


def _simulated(target: Target) -> bool:
    """Whether the target can run in the simulation: all its nodes must be written for `Env`."""
    options = with_defaults("target", target.name, target.options, {})
    settings = TargetSettings(
        profile=target.profiles[0], bugs=(), options=options, environment="sim"
    )
    try:
        refuse_in_simulation(target.nodes(settings))
    except Exception:  # noqa: BLE001 - another package's code; listing it must not fail
        return False
    return True


def _print_group(group: str) -> None:
    say(f"{group.replace('_', '-')}:")
    for entry in _entries(group):
        say(f"  {entry['name']:24} {entry['doc']}")
        if entry.get("imports"):
            say(f"  {'':24} imported histories: harness check {entry['imports']}")
        if entry.get("profiles"):
            say(f"  {'':24} profiles: {', '.join(entry['profiles'])}")
        if entry.get("bugs"):
            bugs = counted(len(entry["bugs"]), "bug")
            say(f"  {'':24} {bugs}: `harness list bugs --target {entry['name']}`")


def _entries(group: str) -> list[dict[str, Any]]:
    entries = []
    for name, plugin in load_all(group):
        if isinstance(plugin, UsageError):
            entries.append({"name": name, "doc": _why_not(plugin)})
            continue
        entry: dict[str, Any] = {"name": name, "doc": plugin.doc}
        if group == "environments":
            able = plugin.capabilities
            entry["capabilities"] = _fidelities(able)
            if plugin.reaches_foreign is not None:
                entry["capabilities_foreign"] = _fidelities(_of_foreign(plugin))
        if isinstance(plugin, HistoryModel):
            entry["imports"] = f"--{plugin.kind} {name}"
        if group == "targets":
            entry["profiles"] = list(plugin.profiles)
            entry["bugs"] = dict(plugin.bugs)
        entries.append(entry)
    return entries


def _why_not(error: UsageError) -> str:
    return str(error) if isinstance(error, ExtraMissingError) else f"BROKEN: {error}"


def _of_foreign(environment: Environment) -> Mapping[Capability, Fidelity]:
    """Return an environment's capabilities for foreign programs (not written for `Env`)."""
    beyond = ENV_NODES_ONLY - FAULTY_DISK
    able = {what: how for what, how in environment.capabilities.items() if what not in beyond}
    return able | dict(environment.reaches_foreign or {})


def _fidelities(able: Mapping[Capability, Fidelity]) -> dict[str, str]:
    return {item.value: able.get(item, Fidelity.NONE).value for item in Capability}


def _print_faults() -> None:
    """Print the faults that each environment can perform, based on its capabilities.

    Foreign programs have columns of their own, since the harness does not control their disks and
    clocks.
    """
    able: dict[str, Mapping[Capability, Fidelity]] = {}
    for name, environment in load_all("environments"):
        if not isinstance(environment, UsageError):  # `harness list environments` shows the error
            able[name] = environment.capabilities
            if environment.reaches_foreign is not None:
                able[f"{name}{_FOREIGN}"] = _of_foreign(environment)
    say("faults (--fault), and where they work:")
    say(f"  {'':40} {' '.join(f'{name:16}' for name in able)}".rstrip())
    for text in EXAMPLES:
        needs = parse(text).requires
        cells = []
        for name, capabilities in able.items():
            cell = _fidelity(needs, capabilities)
            on_faulty_disk = name.endswith(_FOREIGN) and not needs.isdisjoint(FAULTY_DISK)
            cells.append(f"{'faulty disk' if on_faulty_disk else cell:16}")
        say(f"  {text:40} {' '.join(cells)}".rstrip())
    here = why_missing() or "available here"
    say(f"  faulty disk: if the node declares one (NodeSpec.faulty_disk); {here}")


def _fidelity(needs: Iterable[Capability], able: Mapping[Capability, Fidelity]) -> str:
    """Return how faithful a fault is: the worst fidelity of the capabilities that it needs."""
    fidelities = [able.get(need, Fidelity.NONE) for need in needs]
    return max(fidelities, key=list(Fidelity).index).value
