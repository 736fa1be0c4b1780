"""How plug-ins are found: by entry points, which are read without importing any of them.

The groups are `harness.targets`, `.nemeses`, `.workloads`, `.checkers`, `.environments`, `.models`
(what foreign histories are checked against), `.reporters` (what a finished run leaves besides its
verdict), `.soak_executors` (where else a soak can run its seeds), `.soak_sinks` (where else it can
keep its runs), `.sealed_extras` (what it leaves beside their histories), `.diagnoses` (what
`harness doctor` looks for) and `.verbs` (of the command line; the only group whose values are
modules). Any other value is `module:Class` or `module:OBJECT`; its name is what the command line
shows. Only the chosen plug-in is imported. The built-in ones register
in the same way; `harness` imports none.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.plugins import (
    API_VERSION,
    NEMESIS_API_VERSION,
    TARGET_API_VERSION,
    Checker,
    Diagnosis,
    Environment,
    HistoryModel,
    Nemesis,
    Reporter,
    SealedExtra,
    SoakExecutor,
    SoakSink,
    Target,
    Verb,
    Workload,
)

__all__ = ["GROUPS", "load_all", "load_plugin", "load_verb", "plugin_names"]

GROUPS: Final[Mapping[str, type]] = {
    "targets": Target,
    "nemeses": Nemesis,
    "workloads": Workload,
    "checkers": Checker,
    "environments": Environment,
    "models": HistoryModel,
    "reporters": Reporter,
    "soak_executors": SoakExecutor,
    "soak_sinks": SoakSink,
    "sealed_extras": SealedExtra,
    "diagnoses": Diagnosis,
}
"""Groups of plug-in objects and what each must be; the values of `harness.verbs` are modules, see
`load_verb`."""


def _entry_points(group: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return _read_entry_points(group, os.environ.get("HARNESS_NO_PLUGINS") == "1", _search_path())


def _search_path() -> tuple[tuple[str, int, int], ...]:
    """Where packages are looked for, as (place, inode, time of the last change in ns)."""
    found = []
    for place in sys.path:
        try:
            about = Path(place).stat()
        except OSError:
            continue  # nothing can be installed there
        found.append((place, about.st_ino, about.st_mtime_ns))
    return tuple(found)


@functools.lru_cache(maxsize=64)  # reading them takes milliseconds, and a run asks thirty times
def _read_entry_points(
    group: str, only_builtin: bool, _: tuple[tuple[str, int, int], ...]
) -> Mapping[str, importlib.metadata.EntryPoint]:
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=f"harness.{group}"):
        owner = point.dist.name if point.dist is not None else "?"
        if only_builtin and owner != "catalog-harness":
            continue
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            first = other.dist.name if other.dist is not None else "?"
            raise UsageError(
                f"two plug-ins in harness.{group} are named {point.name!r}: {other.value} "
                f"(from {first}) and {point.value} (from {owner}); uninstall or rename one"
            )
        found[point.name] = point
    return dict(sorted(found.items()))


def plugin_names(group: str) -> list[str]:
    """The names in one of `GROUPS`, sorted, without importing any plug-in."""
    return list(_entry_points(group))


def load_plugin(group: str, name: str) -> Any:
    """Import and instantiate one plug-in.

    Raises `UsageError` when the name is unknown (it lists those that exist) or the plug-in is
    broken or written for another `API_VERSION`.
    """
    points = _entry_points(group)
    if name not in points:
        known = ", ".join(points) or "none installed"
        raise UsageError(f"{name!r} is not among the {group}: {known}")
    try:
        found = points[name].load()
        plugin = found() if callable(found) else found
    except (Exception, SystemExit) as error:  # a script that exits when it is imported
        raise UsageError(
            f"the plug-in {name!r} of {group} ({points[name].value}) does not load: {error!r}; "
            "fix it or uninstall its package (HARNESS_NO_PLUGINS=1 disables third-party plug-ins)"
        ) from error
    version = getattr(plugin, "api_version", None)
    spoken = {"nemeses": NEMESIS_API_VERSION, "targets": TARGET_API_VERSION}.get(group, API_VERSION)
    if version != spoken:
        raise UsageError(
            f"the plug-in {name!r} of {group} has api_version {version}; this harness speaks "
            f"{spoken}, see `docs/plugins.md`"
        )
    missing = _missing(plugin, group)
    if missing:
        raise UsageError(
            f"the plug-in {name!r} of {group} ({points[name].value}) lacks {', '.join(missing)}; "
            "see the protocol in harness.plugins"
        )
    return plugin


def load_all(group: str) -> Iterator[tuple[str, Any]]:
    """Name and plug-in of each; in place of one that does not load, the `UsageError` of it."""
    for name in plugin_names(group):
        try:
            plugin = load_plugin(group, name)
        except UsageError as error:
            plugin = error
        yield name, plugin


def load_verb(name: str) -> Verb:
    """Import the module of a verb that a package brings; raises `UsageError` as `load_plugin`."""
    points = _entry_points("verbs")
    if name not in points:
        known = ", ".join(points) or "none installed"
        raise UsageError(f"{name!r} is not among the verbs of installed packages: {known}")
    try:
        verb = points[name].load()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the verb {name!r} ({points[name].value}) does not load: {error!r}; fix it or "
            "uninstall its package"
        ) from error
    if not callable(getattr(verb, "main", None)):
        raise UsageError(f"the verb {name!r} ({points[name].value}) has no main(arguments)")
    return verb  # type: ignore[no-any-return]


def _missing(plugin: Any, group: str) -> list[str]:
    """What the protocol of the group demands and the plug-in does not have."""
    protocol = GROUPS[group]
    members = [*protocol.__annotations__, *vars(protocol)]
    return [name for name in members if not name.startswith("_") and not hasattr(plugin, name)]
