"""`harness.toml`: the defaults of a folder, for options that a command line omits.

Only the current folder's file is read, so that a command never depends on a parent folder. The
file's values become options in front of the command line's options, and the last option wins:
checks, stored runs and replays are the same as if the user had typed the values. With `--case FILE`
or `--no-config` the file is ignored. Replay commands contain `--no-config` if the current folder
has a `harness.toml`.

The tables `[[known]]` list known failures (`harness.verdict.known`).
"""

from __future__ import annotations

import itertools
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.cli.output import note
from harness.errors import UsageError, choices_near
from harness.verdict.known import KEY, KnownFailures, known_in, read_known

FILE: Final = "harness.toml"
KEYS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "target": ((str,), "a text"),
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
"""Map each key of the file to the types of its value, and their description for errors."""
NO_CONFIG: Final = "--no-config"
_HELP: Final = ("-h", "--help", "--help-all")
_FLAGS: Final = {"nemeses": "--nemesis"}
_CASE: Final = frozenset(
    {"target", "workload", "nemeses", "profile", "time-limit", "rate", "concurrency"}
)
_READ_BY: Final[dict[str, frozenset[str]]] = {
    "run": _CASE | {"env", "store"},
    "soak": _CASE | {"env", "store", "label", "jobs"},
    "check-determinism": _CASE,
    "up": frozenset({"target", "profile"}),
    "import": frozenset({"store"}),
}
_OF_TARGET: Final = frozenset({"workload", "profile"})
"""Keys that are ignored if the command line names a target other than the file's."""
_OF_WORKLOAD: Final = frozenset({"target", "profile"})
"""Keys that are ignored if the command line names another workload, but no target."""


def project_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Return the options that `harness.toml` adds to a verb's `arguments`, and print them, too.

    Raises `UsageError` for a file that cannot be read, a key that does not exist, or a value of
    the wrong type.
    """
    wanted = _READ_BY.get(verb)
    flags = {argument.partition("=")[0]: n for n, argument in enumerate(arguments)}
    if wanted is None or not flags.keys().isdisjoint({"--case", NO_CONFIG, *_HELP}):
        return []
    values = _read(Path(FILE))
    target = _value_of("--target", arguments)
    workload = _value_of("--workload", arguments)
    if target is not None and target != values.get("target", target):
        values = {key: value for key, value in values.items() if key not in _OF_TARGET}
    elif target is None and workload not in {None, values.get("workload")}:
        values = {key: value for key, value in values.items() if key not in _OF_WORKLOAD}
    added: list[str] = []
    for key, value in values.items():
        flag = _FLAGS.get(key, f"--{key}")
        replaced = flag in flags or (key == "nemeses" and "--fault" in flags)
        if key in wanted and not replaced:
            text = ",".join(value) if isinstance(value, list) else str(value)
            added.append(f"{flag}={text}")
    if added:
        note(f"defaults from {FILE}: {shlex.join(added)}")
    return added


def replay_words() -> list[str]:
    """The options of a replay that keep this folder's `harness.toml` from changing the case."""
    return [NO_CONFIG] if Path(FILE).exists() else []


def project_store() -> str:
    """The folder of runs from `harness.toml`, or `store`; raises `UsageError` for a bad file."""
    return str(_read(Path(FILE)).get("store", "store"))


def known_failures(path: Path | None, *, config: bool = True) -> KnownFailures:
    """The known failures in `path` (from `--known`), or else in `harness.toml` if `config`.

    Raises `UsageError` like `project_arguments`.
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


def _read(path: Path) -> dict[str, Any]:
    values = _loaded(path)
    known_in(values, path)
    values.pop(KEY, None)
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
