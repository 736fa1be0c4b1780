"""The registry of plug-ins. It finds them by the entry points of installed packages.

The key of an entry point is the name that users type; a plug-in with another `name` is refused. The
groups of entry points are:

* `harness.targets`, `.nemeses`, `.workloads`, `.checkers` and `.environments`;
* `.reporters`: artefacts of a finished run;
* `.soak_executors` and `.soak_sinks`: other places to run the seeds of a soak, or to keep its runs;
* `.diagnoses`: checks for `harness doctor`;
* `.verbs`: verbs of the command line, which are always modules.

In all groups except `.verbs`, the value of an entry point is `module:Class`, `module:OBJECT` or a
module. Usually only the chosen plug-in is imported. If the value is a module, every public object
in it with `name` and `api_version` is a plug-in; a non-empty `__all__` limits these objects. Such a
module is imported when the names of its group are read.

Built-in plug-ins register in the same way; `harness` imports none of them. If several packages have
a plug-in with the same name, the built-in one gets the name, and the others are called
`PACKAGE:NAME`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint
from typing import Any, Final, NamedTuple

from harness.errors import UsageError, shown, unknown_name
from harness.plugins import (
    API_VERSION,
    NEMESIS_API_VERSION,
    TARGET_API_VERSION,
    Checker,
    Diagnosis,
    Environment,
    Nemesis,
    Reporter,
    SoakExecutor,
    SoakSink,
    Target,
    Verb,
    Workload,
)
from harness.plugins.declarations import wrong_declaration
from harness.support.importing import hidden_by, import_module, missing_extra

__all__ = [
    "GROUPS",
    "ExtraMissingError",
    "PlugInPoint",
    "load_all",
    "load_plugin",
    "load_verb",
    "load_working",
    "plug_in_point",
    "plugin_names",
    "qualified_names",
    "taken_names",
    "verb_module_name",
]

VERBS: Final = "verbs"
_OURS: Final = "catalog-harness"
_Path = tuple[tuple[str, int, int], ...]
# Cached, because the property `name` parses the whole metadata each time.
_name_of: Final[Callable[[Distribution], str]] = functools.lru_cache(lambda dist: dist.name)
_FIX_PLUGIN: Final = (
    "fix it or uninstall its package (HARNESS_NO_PLUGINS=1 disables third-party plug-ins)"
)

_log = logging.getLogger(__name__)

GROUPS: Final[Mapping[str, type]] = {
    "targets": Target,
    "nemeses": Nemesis,
    "workloads": Workload,
    "checkers": Checker,
    "environments": Environment,
    "reporters": Reporter,
    "soak_executors": SoakExecutor,
    "soak_sinks": SoakSink,
    "diagnoses": Diagnosis,
}
"""The base type of plug-ins in each group. Plug-ins of `harness.verbs` are modules
(`load_verb`)."""


_ONE_OF: Final[Mapping[str, str]] = {
    **{group: group.removesuffix("s").replace("_", " ") for group in GROUPS},
    "nemeses": "nemesis",
    "diagnoses": "diagnosis",
    VERBS: "verb",
}
"""The noun for one plug-in of each group."""


class ExtraMissingError(UsageError):
    """A plug-in needs a Python package that an extra of its distribution would install."""


class PlugInPoint(NamedTuple):
    """The place of a plug-in: an entry point, or one object in the module of an entry point."""

    value: str
    """The plug-in's place in Python's modules: `module:OBJECT`, or only `module`."""
    dist: Distribution | None

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]

    @property
    def owner(self) -> str:
        return _name_of(self.dist) if self.dist is not None else "?"


class _Points(NamedTuple):
    """The plug-ins of one group by name, and the names that several of them have."""

    by_name: Mapping[str, PlugInPoint]
    taken: Mapping[str, tuple[str, ...]]
    """Maps each such name to the plug-ins that did not get it (`PACKAGE:NAME`)."""
    qualified: Mapping[str, PlugInPoint]
    """All plug-ins as `PACKAGE:NAME`. A case that uses such a name stays valid when names clash
    later."""


def _entry_points(group: str) -> _Points:
    return _read_entry_points(group, os.environ.get("HARNESS_NO_PLUGINS") == "1", _search_path())


def _search_path() -> _Path:
    """Return the search path of packages, as (path, inode, time of the last change in ns)."""
    places = []
    for place in sys.path:
        try:
            about = os.stat(place or ".")  # noqa: PTH116 - asked often, and a `Path` takes longer
        except OSError:
            continue  # a path that does not exist has no packages
        places.append((place, about.st_ino, about.st_mtime_ns))
    return tuple(places)


@functools.lru_cache(maxsize=8)
def _select(_: _Path) -> Callable[..., Iterable[EntryPoint]]:
    return importlib.metadata.entry_points().select


@functools.lru_cache(maxsize=64)  # a run reads each group often, which takes milliseconds
def _read_entry_points(group: str, only_builtin: bool, path: _Path) -> _Points:
    claims: dict[str, dict[str, PlugInPoint]] = {}
    for entry in _select(path)(group=f"harness.{group}"):
        whole = PlugInPoint(entry.value.partition("[")[0].strip(), entry.dist)
        if only_builtin and whole.owner != _OURS:
            continue
        many = ":" not in whole.value and group != VERBS
        for name, point in _members(whole, entry.name) if many else ((entry.name, whole),):
            named = claims.setdefault(name, {})
            if all(other.value != point.value for other in named.values()):
                named.setdefault(point.owner, point)
    by_name: dict[str, PlugInPoint] = {}
    taken: dict[str, tuple[str, ...]] = {}
    qualified: dict[str, PlugInPoint] = {}
    for name, named in claims.items():
        winner = _OURS if _OURS in named else next(iter(named)) if len(named) == 1 else None
        others = {f"{owner}:{name}": point for owner, point in named.items() if owner != winner}
        by_name |= others
        qualified |= {f"{owner}:{name}": point for owner, point in named.items()}
        if winner is not None:
            by_name[name] = named[winner]
        if others:
            taken[name] = tuple(sorted(others))
    return _Points(dict(sorted(by_name.items())), dict(sorted(taken.items())), qualified)


def _members(whole: PlugInPoint, name: str) -> Iterator[tuple[str, PlugInPoint]]:
    """Yield the name and place of each plug-in of a module.

    A module that fails to load has one entry, under the entry point's `name`, so that it is listed.
    Loading that entry reports the error.
    """
    try:
        module = import_module(whole.module)
    except (Exception, SystemExit):  # noqa: BLE001 - `load_plugin` reports the error
        yield name, whole
        return
    listed = getattr(module, "__all__", None) or vars(module)
    for attribute, value in vars(module).items():
        if (
            attribute.startswith("_")
            or attribute not in listed
            or not hasattr(value, "api_version")
        ):
            continue
        imported = isinstance(value, type) and value.__module__ != module.__name__
        if isinstance(plug_in_name := getattr(value, "name", None), str) and not imported:
            yield plug_in_name, PlugInPoint(f"{whole.module}:{attribute}", whole.dist)


def plug_in_point(group: str, name: str) -> PlugInPoint | None:
    """Return the place of a plug-in. Imports only modules that are needed to find its name."""
    points = _entry_points(group)
    return points.by_name.get(name) or points.qualified.get(name)


def plugin_names(group: str) -> list[str]:
    """Return the sorted names of a group's plug-ins.

    Only modules with several plug-ins are imported. If several plug-ins share a name, the built-in
    one keeps it, and the others are called `PACKAGE:NAME`. If none is built in, all of them are
    called `PACKAGE:NAME`.
    """
    return list(_entry_points(group).by_name)


def qualified_names(group: str, name: str) -> list[str]:
    """Return `PACKAGE:NAME` for each plug-in with this name, except for a built-in one."""
    names = _entry_points(group).qualified
    return [
        each
        for each in names
        if each.partition(":")[2] == name and not each.startswith(f"{_OURS}:")
    ]


def taken_names() -> Iterator[tuple[str, str, bool, tuple[str, ...]]]:
    """Yield each name that several plug-ins have.

    Each item is (group, name, whether a built-in plug-in has the name, the other plug-ins as
    `PACKAGE:NAME`).
    """
    for group in [*GROUPS, VERBS]:
        points = _entry_points(group)
        for name, others in points.taken.items():
            yield group, name, name in points.by_name, others


def _find(group: str, name: str) -> PlugInPoint:
    points = _entry_points(group)
    others = points.taken.get(name, ())
    if name in points.by_name:
        if others:
            _warn_of_others(group, name, others)
        return points.by_name[name]
    if name in points.qualified:
        return points.qualified[name]
    if others:
        raise UsageError(
            f"several packages have a plug-in {name!r} in harness.{group}; say which one: "
            f"{', '.join(others)}"
        )
    see = "harness list" if group == VERBS else f"harness list {group.replace('_', '-')}"
    unknown = unknown_name(_ONE_OF[group], name, points.by_name, see=see)
    modules = sorted(point.value for point in points.by_name.values() if ":" not in point.value)
    if group == VERBS or not modules:
        raise unknown
    raise UsageError(f"{unknown}; {', '.join(modules)} does not load: `{see}` shows why")


@functools.cache  # cached, so that the process logs each warning only once
def _warn_of_others(group: str, name: str, others: tuple[str, ...]) -> None:
    _log.warning(
        "several packages have a plug-in %r in harness.%s; the built-in one is used, and %s",
        name,
        group,
        " and ".join(f"{each!r} names that of {each.partition(':')[0]}" for each in others),
    )


def load_plugin(group: str, name: str) -> Any:
    """Import and instantiate one plug-in.

    Raises `UsageError` when the name is unknown (the message lists existing names), or the plug-in
    is broken or written for another `API_VERSION`.
    """
    point = _find(group, name)
    try:
        value = _load(point)
        lacking = _lacking(value, group)
        plugin = value() if callable(value) and not lacking else value
    except (Exception, SystemExit) as error:  # a module may call `sys.exit` when it is imported
        raise _load_error(f"the plug-in {name!r} of {group}", point, error) from error
    version = getattr(plugin, "api_version", None)
    spoken = {"nemeses": NEMESIS_API_VERSION, "targets": TARGET_API_VERSION}.get(group, API_VERSION)
    if version != spoken:
        raise UsageError(
            f"the plug-in {name!r} of {group} has api_version {version}; this harness needs "
            f"{spoken}, see `docs/plugins.md`"
        )
    base = GROUPS[group].__name__
    if not lacking and not isinstance(plugin, GROUPS[group]):
        raise UsageError(
            f"the plug-in {name!r} of {group} ({point.value}) is not a harness.plugins.{base}; "
            f"write `class {type(plugin).__name__}({base})`, see `docs/plugins.md`"
        )
    if lacking or (lacking := _lacking(plugin, group)):
        raise UsageError(
            f"the plug-in {name!r} of {group} ({point.value}) lacks {', '.join(lacking)}; "
            f"see harness.plugins.{base}"
        )
    if (wrong := wrong_declaration(plugin, group)) is not None:
        raise UsageError(f"the plug-in {name!r} of {group} ({point.value}) has {wrong}")
    if plugin.name != (key := name.rpartition(":")[2]):
        raise UsageError(
            f"the plug-in {name!r} of {group} ({point.value}) has name={shown(plugin.name)}; it "
            f"must be the key of its entry point, {key!r}"
        )
    return plugin


def load_all(group: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and plug-in of each entry in a group.

    For a plug-in that does not load, the second item is the `UsageError`.
    """
    for name in plugin_names(group):
        try:
            plugin = load_plugin(group, name)
        except UsageError as error:
            plugin = error
        yield name, plugin


def load_working(group: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and plug-in of each entry in a group that loads.

    `harness doctor` shows why the others do not load.
    """
    return (pair for pair in load_all(group) if not isinstance(pair[1], UsageError))


def verb_module_name(name: str) -> str:
    """Return the name of a verb's module, without importing the module."""
    return _find(VERBS, name).module


def load_verb(name: str) -> Verb:
    """Import the module of a verb; raises `UsageError` for an unknown or broken verb."""
    point = _find(VERBS, name)
    try:
        verb = _load(point)
    except (Exception, SystemExit) as error:
        raise _load_error(f"the verb {name!r}", point, error) from error
    if not callable(getattr(verb, "main", None)):
        raise UsageError(f"the verb {name!r} ({point.value}) has no main(arguments)")
    return verb  # type: ignore[no-any-return]


def _load(point: PlugInPoint) -> Any:
    """Return the object that an entry point names; passes on any exception of its module."""
    value: Any = import_module(point.module)
    for attribute in point.value.split(":")[1:]:
        for part in attribute.split("."):
            value = getattr(value, part)
    return value


def _load_error(what: str, point: PlugInPoint, error: BaseException) -> UsageError:
    """Return the error for a plug-in whose import or instantiation raised `error`."""
    for dist in filter(None, (point.dist, importlib.metadata.distribution(_OURS))):
        if (lack := missing_extra(error, dist)) is not None:
            package, extra = lack
            return ExtraMissingError(
                f"{what} needs the extra {extra!r} ({package} is not installed): "
                f"pip install '{dist.name}[{extra}]'"
            )
    return UsageError(
        f"{what} ({point.value}) does not load: {error!r}; {hidden_by(point.module) or _FIX_PLUGIN}"
    )


def _lacking(value: Any, group: str) -> list[str]:
    """Return the methods that a class does not implement, or the members that an object lacks."""
    if callable(value):
        return sorted(getattr(value, "__abstractmethods__", ()))
    base = GROUPS[group]
    members = {name for kind in base.__mro__ for name in getattr(kind, "__annotations__", ())}
    return sorted(name for name in members if not hasattr(value, name))
