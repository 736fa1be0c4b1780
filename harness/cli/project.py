"""Reads `harness.toml`, which has defaults for options that the command line omits.

Only the current folder's file is read, so a command never depends on a parent folder. The file's
values become options before the command line's own, and the last one wins. With `--case FILE` or
`--no-config`, the file is ignored. Replay commands contain `--no-config` if the current folder has
a `harness.toml`.

The tables `[[known]]` list known failures (`harness.verdict.known`).

The file may declare a system, with tables such as `[nodes]` and `[client]`. Its key `system` may
instead name a file that declares one. The file that `--system` names may set the same keys as
`harness.toml`; its values win.
"""

from __future__ import annotations

import itertools
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.cli.output import note
from harness.errors import UsageError, choices_near
from harness.verdict.known import KEY, KnownFailures, known_in, read_known

FILE: Final = "harness.toml"
KEYS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "target": ((str,), "a text"),
    "system": ((str,), "a text"),
    "workload": ((str,), "a text"),
    "nemeses": ((list,), "a list of texts"),
    "profile": ((str,), "a text"),
    "env": ((str,), "a text"),
    "store": ((str,), "a text"),
    "label": ((str,), "a text"),
    "time-limit": ((int, float), "a number of seconds"),
    "rate": ((int, float), "a number"),
    "concurrency": ((int,), "a whole number"),
    "jobs": ((int,), "a whole number"),
}
"""Map each key of the file to the types of its value, and to the words for them in errors."""
NO_CONFIG: Final = "--no-config"
SYSTEM: Final = "--system"
_HELP: Final = ("-h", "--help", "--help-all")
_DECLARING: Final = frozenset({"nodes", "compose", "client"})
"""Keys by which a file declares a system; the target `declared` checks its other keys."""
_FLAGS: Final = {"nemeses": "--nemesis"}
_CASE: Final = frozenset(
    {"target", "system", "workload", "nemeses", "profile", "time-limit", "rate", "concurrency"}
)
_READ_BY: Final[dict[str, frozenset[str]]] = {
    "run": _CASE | {"env", "store"},
    "soak": _CASE | {"env", "store", "label", "jobs"},
    "check-determinism": _CASE,
    "up": frozenset({"target", "system", "profile"}),
    "import": frozenset({"store"}),
}
_OF_TARGET: Final = frozenset({"workload", "profile"})
"""Keys of the file that are ignored if the command line names a different target."""
_OF_WORKLOAD: Final = frozenset({"target", "profile"})
"""Keys of the file that are ignored if the command line names another workload but no target."""


def project_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Return, and print, the options that `harness.toml` adds to the `arguments` of a verb.

    Raises `UsageError` for an unreadable file, an unknown key, or a value of the wrong type.
    """
    wanted = _READ_BY.get(verb)
    flags = {argument.partition("=")[0]: n for n, argument in enumerate(arguments)}
    if wanted is None or not flags.keys().isdisjoint({"--case", NO_CONFIG, *_HELP}):
        return []
    values = _settings(arguments)
    added: list[str] = []
    for key, value in values.items():
        flag = _FLAGS.get(key, f"--{key}")
        replaced = flag in flags or (key == "nemeses" and "--fault" in flags)
        if key in wanted and not replaced:
            text = ",".join(value) if isinstance(value, list) else str(value)
            added.append(f"{flag}={text}")
    if added:
        files = dict.fromkeys([FILE, *_system_file(arguments, values)])
        names = [file for file in files if Path(file).exists()]
        note(f"defaults from {' and '.join(names)}: {shlex.join(added)}")
    return added


def _settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Merge the values of `harness.toml` and of the file that declares the system.

    Values for a target or workload that the command line replaces are dropped.
    """
    values = settings_of_file(Path(FILE))
    target, workload = (_value_of(flag, arguments) for flag in ("--target", "--workload"))
    if target is not None:
        if "system" in values or target != values.get("target", target):
            dropped = {"system", *_OF_TARGET}
            values = {key: value for key, value in values.items() if key not in dropped}
        return values
    for system in _system_file(arguments, values):
        of_system = settings_of_file(Path(system))
        dropped = {"target", "system", *_OF_TARGET}
        rest = {key: value for key, value in values.items() if key not in dropped}
        values = {**rest, **of_system, "system": system}
    if "system" not in values and workload not in {None, values.get("workload")}:
        values = {key: value for key, value in values.items() if key not in _OF_WORKLOAD}
    return values


def _system_file(arguments: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return the file that declares the system, if it is not `harness.toml`: at most one path."""
    named = _value_of(SYSTEM, arguments) or values.get("system", FILE)
    return [] if named == FILE else [str(named)]


def replay_words() -> list[str]:
    """Return the option by which a replay ignores this folder's `harness.toml`, if any."""
    return [NO_CONFIG] if Path(FILE).exists() else []


def project_store() -> str:
    """Return the folder of runs that `harness.toml` names, else `store`; raises `UsageError`."""
    return str(settings_of_file(Path(FILE)).get("store", "store"))


def known_failures(path: Path | None, *, config: bool = True) -> KnownFailures:
    """Return the known failures in `path`, the file of `--known`.

    Without `path`, return those in `harness.toml`, if `config` is true. Raises `UsageError` like
    `project_arguments`.
    """
    if path is not None:
        return read_known(path)
    return known_in(_loaded(Path(FILE)), Path(FILE)) if config else KnownFailures()


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else following
    return None


def _loaded(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; fix it or remove it") from error


def settings_of_file(path: Path) -> dict[str, Any]:
    """Read the settings in `harness.toml` or in a system's declaration; raise `UsageError`."""
    try:
        values = _loaded(path)
    except UsageError:
        if str(path) == FILE:
            raise
        # No error here: the target reads this file later, and its message is better.
        return {}
    known_in(values, path)
    values.pop(KEY, None)
    if not _DECLARING.isdisjoint(values):
        values = {key: value for key, value in values.items() if key in KEYS}
        values.setdefault("system", str(path))
    for key, value in values.items():
        if key not in KEYS:
            raise UsageError(f"{path} has the key {key!r}; {choices_near(key, [*KEYS, KEY])}")
        types, rule = KEYS[key]
        right = type(value) in types and (
            not isinstance(value, list) or all(type(item) is str for item in value)
        )
        if not right:
            raise UsageError(f"{path}: {key} is {value!r}; it must be {rule}")
        if value in ("", []):
            raise UsageError(f"{path}: {key} is empty; give it {rule}, or remove the line")
    return values
