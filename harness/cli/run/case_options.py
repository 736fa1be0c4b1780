"""The options that define a case, shared by `run`, `soak` and `check-determinism`.

Targets and workloads add options of their own. So arguments are parsed twice: first to find the
chosen plug-ins, then with all options. The parser's defaults are `None`, which means that the
option was omitted: with `--case FILE`, options whose values are in the file are refused.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case, load_case
from harness.cli.output import note
from harness.cli.parser import Parser
from harness.cli.project import NO_CONFIG, SYSTEM
from harness.cli.run.system_option import DECLARED, add_system, keep_system, system_options
from harness.errors import UsageError, listed
from harness.faults.parser import parse
from harness.plan.configured import load_target
from harness.plan.planning import flags_of, needed_options
from harness.plan.random_case import DRAWABLE
from harness.plugins import Option, Workload
from harness.registry import load_plugin, load_working

_DEFAULTS: Final = Case(seed=0)
NO_BUG: Final = "none"
"""The value of `--bug` that switches off a case file's bugs."""
DEFAULT_TARGET: Final = _DEFAULTS.target
DEFAULT: Final = "default"
PLAIN: Final[dict[str, tuple[str, type, str]]] = {
    # flag: (field of `Case`, type, help)
    "--profile": ("profile", str, "the set of promises that the target makes"),
    "--time-limit": ("time_limit_s", float, "length of the chaos phase"),
    "--rate": ("rate", float, "operations per second, over all clients"),
    "--concurrency": ("concurrency", int, "number of concurrent clients"),
    "--draw": (
        "draw",
        int,
        "each seed draws 1 to N of the nemeses; 0: uses all of them, or draws 1 or 2 of `any`",
    ),
    "--interval": ("interval_s", float, "time between the faults of a nemesis"),
    "--duration": ("duration_s", float, "approximate length of a fault"),
    "--op-timeout": ("op_timeout_s", float, "time limit of one operation"),
    "--damage": ("damage", str, "part of a group that may lose synced data: minority or majority"),
}


def parse_case_options(
    parser: Parser, arguments: Sequence[str], *, nemesis: str = "none"
) -> argparse.Namespace:
    """Parse `arguments` with the options of cases and of the chosen plug-ins added to `parser`.

    `nemesis` is the default of `--nemesis` if the arguments name no case file.
    """
    _add_choices(parser, nemesis)
    parser.add_argument(NO_CONFIG, action="store_true", help="do not read harness.toml")
    chosen, _ = _silent_copy().parse_known_args(list(arguments))
    target_name, workload_name, configuring = _chosen(chosen)
    target = load_target(target_name, configuring)
    workload: Workload = load_plugin("workloads", workload_name)
    _add_plugin_options(parser, "target", target_name, target.options)
    _add_plugin_options(parser, "workload", workload_name, workload.options)
    parser.elsewhere = lambda flag: _owners_of(flag, target_name, workload_name)
    parsed = parser.parse_args(list(arguments))
    keep_system(parsed, configuring)
    parsed.nemesis_default = nemesis
    parsed.target_options = target.options
    parsed.workload_options = workload.options
    return parsed


def _owners_of(flag: str, target: str, workload: str) -> str | None:
    """Return a phrase that lists the other targets or workloads with this option, if any."""
    for group, chosen in (("workloads", workload), ("targets", target)):
        owners = [
            name
            for name, plugin in load_working(group)
            if flag in {f"--{option.name}" for option in plugin.options}
        ]
        if owners:
            kind = group.removesuffix("s")
            of = f"{kind} {owners[0]}" if len(owners) == 1 else f"{group} {', '.join(owners)}"
            flags = [f"--{option.name}" for option in load_plugin(group, chosen).options]
            return f"{flag} belongs to the {of}; {chosen} has {listed(flags, limit=5)}"
    return None


def parse_target_options(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse `arguments` with `parser` and the options for deploying a system without a run."""
    group = parser.add_argument_group("the system")
    group.add_argument(
        "--target", metavar="NAME", help=f"the system to deploy (default: {_DEFAULTS.target})"
    )
    add_system(group)
    for flag in ("--profile", "--damage"):
        _add_plain(group, flag)
    group.add_argument(
        "--bug", metavar="ID", action="append", help="switch on a known defect (repeatable)"
    )
    group.add_argument(
        "--fault",
        metavar="WORDS",
        action="append",
        help="a nemesis or a fault in words that `harness break` may inject later; prepares "
        "foreign programs for faults of their clocks and disks (repeatable)",
    )
    chosen, _ = _silent_copy().parse_known_args(list(arguments))
    declared = system_options(chosen)
    name = DECLARED if declared else chosen.target or DEFAULT_TARGET
    target = load_target(name, declared)
    _add_plugin_options(parser, "target", name, target.options)
    parsed = parser.parse_args(list(arguments))
    keep_system(parsed, declared)
    parsed.target = name if declared else parsed.target
    parsed.usual_name = target.name
    parsed.target_options = target.options
    return parsed


def target_case_from(
    parsed: argparse.Namespace, seed: int | None, *, before: Case | None = None
) -> Case:
    """Return the case of a system to deploy, from the result of `parse_target_options`.

    Omitted options are taken from `before`, the case of the kept data. Raises `UsageError` if
    `before` has another target, because targets have different options.
    """
    target = parsed.target or DEFAULT_TARGET
    if before is None:
        usual = load_target(target, _plugin_options(parsed, "target")).usual
        before = Case(seed=int.from_bytes(os.urandom(4), "big"), target=target, **usual)
    elif before.target != target:
        raise UsageError(
            f"the kept data belong to the target {before.target!r}, not {target!r}; give "
            f"--target {before.target} to start from them, or --fresh to start without data"
        )
    chosen = {
        "profile": parsed.profile,
        "damage": parsed.damage,
        "seed": seed,
        "bugs": parsed.bug and tuple(parsed.bug),
        "nemeses": parsed.fault and tuple(parsed.fault),
    }
    return msgspec.structs.replace(
        before,
        **{name: value for name, value in chosen.items() if value is not None},
        target_options={**before.target_options, **_plugin_options(parsed, "target")},
    )


def _add_plugin_options(parser: Parser, owner: str, name: str, options: Sequence[Option]) -> None:
    taken = {flag for action in parser._actions for flag in action.option_strings}  # noqa: SLF001
    group = parser.add_argument_group(f"options of the {owner} {name!r}")
    for option in options:
        if f"--{option.name}" == SYSTEM:
            continue  # the command line has its own `--system`, for the file with this content
        if f"--{option.name}" in taken:
            raise UsageError(
                f"the {owner} {name!r} defines the option --{option.name}, which already exists"
            )
        _add_option(group, owner, option)


def _plugin_options(parsed: argparse.Namespace, owner: str) -> dict[str, Any]:
    return {
        option.key: value
        for option in getattr(parsed, f"{owner}_options")
        if (value := getattr(parsed, f"{owner}:{option.key}", None)) is not None
    }


def _add_choices(parser: argparse.ArgumentParser, nemesis: str) -> None:
    group = parser.add_argument_group("the case")
    group.add_argument(
        "--target", metavar="NAME", help=f"system under test (default: {_DEFAULTS.target})"
    )
    add_system(group)
    group.add_argument(
        "--workload",
        metavar="NAME",
        help=f"what clients do (default: the target's own, or {_DEFAULTS.workload})",
    )
    group.add_argument(
        "--nemesis",
        metavar="A,B",
        help="nemeses, comma-separated; `harness list nemeses` describes them; `any`: drawn "
        f"from the seed (default: {nemesis})",
    )
    group.add_argument(
        "--fault",
        metavar="WORDS",
        action="append",
        help="a fault in words, e.g. 'kill leader every 15s for 5s', 'pause one', 'cut leader "
        "from members every 10s for 4s'; repeatable; `harness list faults` has more",
    )
    group.add_argument(
        "--checkers",
        metavar="default,+A",
        help="`default` for the checkers of workload and target, then +NAME for each checker to "
        "add, e.g. default,+mine (default: default)",
    )
    group.add_argument(
        "--bug",
        metavar="ID",
        action="append",
        help="switch on a known defect (repeatable); with --case, `none` switches its bugs off",
    )
    for flag in PLAIN:
        _add_plain(group, flag)
    group.add_argument(
        "--knob",
        metavar="NAME=VALUE",
        action="append",
        help="a knob of the simulation, e.g. latency=tail (repeatable)",
    )
    group.add_argument(
        "--case", metavar="FILE", type=Path, help="read the whole case from FILE instead"
    )


def _add_plain(group: Any, flag: str) -> None:
    field, kind, text = PLAIN[flag]
    group.add_argument(
        flag,
        dest=field,
        type=kind,
        metavar="S" if field.endswith("_s") else {str: "NAME", int: "N", float: "PER_S"}[kind],
        help=f"{text} (default: {getattr(_DEFAULTS, field)})",
    )


def _silent_copy() -> Parser:
    parser = Parser(add_help=False)
    parser.add_argument("--target")
    parser.add_argument(SYSTEM, type=Path)
    parser.add_argument("--workload")
    parser.add_argument("--case", type=Path)
    return parser


def _chosen(parsed: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """Return the chosen target, the chosen workload, and the options that configure the target."""
    if parsed.case is not None:
        case = load_case(parsed.case)
        return case.target, case.workload, case.target_options
    declared = system_options(parsed)
    target = _target_of(parsed)
    return target, parsed.workload or _usual_workload(target, declared), declared


def _target_of(parsed: argparse.Namespace) -> str:
    """Return the target that the user chose, else the workload's target, else the default."""
    if parsed.system is not None:
        return DECLARED
    if parsed.target is None and parsed.workload is not None:
        return str(load_plugin("workloads", parsed.workload).target or _DEFAULTS.target)
    return str(parsed.target or _DEFAULTS.target)


def _usual_workload(target: str, options: Mapping[str, Any]) -> str:
    return str(load_target(target, options).workload or _DEFAULTS.workload)


def _add_option(group: Any, owner: str, option: Option) -> None:
    dest = f"{owner}:{option.key}"
    text = f"{option.help} (default: {option.default if option.default != '' else 'none'})"
    if isinstance(option.default, bool):
        group.add_argument(
            f"--{option.name}",
            dest=dest,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=text,
        )
        return
    kind = type(option.default)
    group.add_argument(
        f"--{option.name}",
        dest=dest,
        type=kind,
        metavar=_metavar(option),
        help=text.replace("%", "%%"),
    )


def _metavar(option: Option) -> str:
    if option.name == "mix":
        return "KIND=WEIGHT,.."
    if option.name.endswith("-ms"):
        return "MS"
    if "percent" in f"{option.name} {option.help}":
        return "PERCENT"
    return {str: "TEXT", int: "N", float: "X"}[type(option.default)]


def case_from(parsed: argparse.Namespace, seed: int | None) -> Case:
    """Return the case that the options describe. Without `seed`, the seed is random."""
    given = {field: getattr(parsed, field) for field, _, _ in PLAIN.values()}
    given |= {
        "target": parsed.target,
        "workload": parsed.workload,
        "nemeses": parsed.nemesis,
        "faults": parsed.fault,
        "checkers": parsed.checkers,
        "bugs": parsed.bug,
        "knobs": parsed.knob,
        "seed": seed,
    }
    options = {owner: _plugin_options(parsed, owner) for owner in ("target", "workload")}
    if parsed.case is not None:
        without_bugs = parsed.bug == [NO_BUG]
        _refuse_beside_case({**given, "bugs": None} if without_bugs else given, options)
        case = load_case(parsed.case)
        return msgspec.structs.replace(case, bugs=()) if without_bugs else case
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    fields["seed"] = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    fields["given"] = tuple(name for name in DRAWABLE if name in fields)
    fields["bugs"] = tuple(parsed.bug or ())
    fields.pop("faults", None)
    fields["nemeses"] = _nemeses(parsed)
    fields["checkers"] = _checkers(parsed.checkers or DEFAULT)
    fields["knobs"] = dict(parse_pair(text, "--knob") for text in parsed.knob or ())
    # `--target` may be PACKAGE:NAME, but the plug-in's own `name` has no package
    name = _target_of(parsed)
    target = load_target(name, options["target"])
    fields["target"] = name
    fields.setdefault("workload", str(target.workload or _DEFAULTS.workload))
    workload = load_plugin("workloads", fields["workload"])
    if workload.vocabulary in target.vocabularies:  # `plan_case` refuses any other workload
        needed = needed_options(workload, target, options["workload"], options["target"])
        options["target"] |= needed
        _note_needs(workload.name, needed, None if parsed.target or parsed.system else name)
    fields = {**target.usual, **workload.usual, **fields}
    return Case(**fields, target_options=options["target"], workload_options=options["workload"])


def _note_needs(workload: str, needed: dict[str, Any], target: str | None) -> None:
    """Print a note about the options that the workload needs and that the user did not give."""
    implied = [flags_of({"target": target})] if target not in {None, _DEFAULTS.target} else []
    implied += [flags_of(needed)] if needed else []
    if implied:
        note(f"the workload {workload} implies {' '.join(implied)}")


def _refuse_beside_case(given: dict[str, Any], options: dict[str, dict[str, Any]]) -> None:
    names = [name for name, value in given.items() if value is not None]
    names += [name for values in options.values() for name in values]
    if names:
        raise UsageError(
            f"--case decides the whole case; drop the options for {', '.join(sorted(names))}, "
            "or edit the file"
        )


def _nemeses(parsed: argparse.Namespace) -> tuple[str, ...]:
    """Return the nemeses and faults that the user gave, else the default nemesis."""
    faults = [parse(text).text for text in parsed.fault or ()]
    text = parsed.nemesis or ("" if faults else parsed.nemesis_default)
    names = [name.strip() for name in text.split(",")] if text else []
    if not all(names):
        raise UsageError(f"--nemesis is {text!r}; separate names with commas, e.g. a,b")
    if len(names) + len(faults) > 1 and "none" in names:
        raise UsageError(
            f"--nemesis is {text!r}; `none` cannot be combined with others: leave it out"
        )
    return tuple(dict.fromkeys([*names, *faults]))


def _checkers(text: str) -> tuple[str, ...]:
    """Return the checkers to add, from `default,+NAME...`; raises `UsageError` for another form."""
    default, *added = (name.strip() for name in text.split(","))
    if default != DEFAULT or not all(len(name) > 1 and name[0] == "+" for name in added):
        raise UsageError(
            f"--checkers is {text!r}; write `default` and then +NAME for each checker to add, "
            "e.g. default,+mine; `harness list checkers` names them"
        )
    return tuple(dict.fromkeys(name[1:] for name in added))


def parse_pair(text: str, flag: str) -> tuple[str, Any]:
    """Split `NAME=VALUE`, the argument of the option `flag`; the value is JSON if possible, else
    text.

    Raises `UsageError`.
    """
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{flag} is {text!r}; write it as NAME=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
