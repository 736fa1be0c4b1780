"""The rules of a deployment: valid combinations of declarations, the order of starts, and variants.

Every environment checks the declarations by these rules before anything starts, and starts nodes in
the same order. An environment itself refuses declarations that it does not support.
"""

from __future__ import annotations

import asyncio
import graphlib
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from harness.cluster import Cluster, NodeSpec, NodeState
from harness.errors import UsageError
from harness.nodes.declaration import (
    BASE,
    Ready,
    ReadyCommand,
    ReadyHttp,
    ReadyLog,
    ReadyPort,
    Variant,
)
from harness.nodes.program import is_program, program_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HTTP_PATH: Final = re.compile(r"/[!-~]*")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_WITHIN_S_MAX: Final = 3600.0
_FILE_CHARACTERS_MAX: Final = 1024 * 1024
_MEMORY_MIB_MIN: Final = 16
_CPUS_MAX: Final = 1024.0
_STOP_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGQUIT")


# --- which declarations are allowed --------------------------------------------------------------


def check_nodes(nodes: Sequence[NodeSpec]) -> None:
    """Raise `UsageError` for declarations that are invalid in every environment."""
    names = [spec.name for spec in nodes]
    for spec in nodes:
        for name in spec.after:
            if name not in names or name == spec.name:
                raise UsageError(
                    f"node {spec.name!r} is to start after {name!r}; `after` takes the names of "
                    f"other nodes: {', '.join(n for n in names if n != spec.name) or 'none'}"
                )
        _check_ready(spec)
        _check_pages(spec)
        _check_files(spec)
        if not all(spec.setup):
            raise UsageError(
                f"node {spec.name!r} has an empty command in `setup`; write a tuple of words"
            )
        if spec.clock_probe and spec.entry is not None:
            raise UsageError(
                f"node {spec.name!r} has a `clock_probe`, but is written against `Env`, whose "
                "clock is the harness's own; drop `clock_probe`"
            )
        _check_limits(spec)
        _check_container(spec)
        if spec.stop_signal not in _STOP_SIGNALS:
            raise UsageError(
                f"node {spec.name!r} has the stop_signal {spec.stop_signal!r}; it is one of: "
                f"{', '.join(_STOP_SIGNALS)}"
            )
        if spec.stop_signal != _STOP_SIGNALS[0] and spec.entry is not None:
            raise UsageError(
                f"node {spec.name!r} has a `stop_signal`, which is for foreign programs: a node "
                "written against `Env` is cancelled instead; leave it out"
            )
        if spec.faulty_disk and spec.entry is not None:
            raise UsageError(
                f"node {spec.name!r} declares `faulty_disk`, which is for foreign programs: the "
                "disk of a node with an `entry` is already the harness's; leave it out"
            )
        for name, variant in spec.variants.items():
            _check_variant(spec, name, variant)
        for form in forms_of(spec).values():
            if form.image is not None and form.dockerfile is not None:
                raise UsageError(
                    f"node {spec.name!r} has the image {form.image!r} and the dockerfile "
                    f"{form.dockerfile!r}; declare one of them"
                )
    start_layers(nodes)


def _check_ready(spec: NodeSpec) -> None:
    ready = spec.ready
    if ready is None:
        return
    where = f"the readiness of node {spec.name!r}"
    if not 0 < ready.within_s <= _WITHIN_S_MAX:
        raise UsageError(
            f"{where}: within_s is {ready.within_s}; it must be above 0 and at most {_WITHIN_S_MAX}"
        )
    if isinstance(ready, ReadyPort | ReadyHttp) and ready.port not in spec.ports:
        raise UsageError(
            f"{where}: the port {ready.port} is none of its declared ports {list(spec.ports)}; "
            "add it to `ports`"
        )
    if isinstance(ready, ReadyHttp) and not _HTTP_PATH.fullmatch(ready.path):
        raise UsageError(
            f"{where}: the path {ready.path!r} must begin with '/' and hold no space; write other "
            "characters as %XX"
        )
    if isinstance(ready, ReadyCommand) and not ready.command:
        raise UsageError(f"{where}: its command is empty; give it as a tuple of words")
    if isinstance(ready, ReadyLog):
        try:
            re.compile(ready.pattern)
        except re.error as error:
            raise UsageError(
                f"{where}: {ready.pattern!r} is not a regular expression: {error}"
            ) from error


def _check_pages(spec: NodeSpec) -> None:
    if spec.pages is None:
        return
    if spec.entry is None:
        raise UsageError(
            f"node {spec.name!r} has `pages` (a web port) {spec.pages}, but is not written against "
            "`Env`; list a foreign program's web port in `ports`"
        )
    if spec.pages in spec.ports:
        raise UsageError(
            f"node {spec.name!r} has its web pages on port {spec.pages}, which is also one of its "
            f"`ports` {list(spec.ports)}; set `pages` to another port"
        )


def _check_files(spec: NodeSpec) -> None:
    for path, text in spec.files.items():
        parts = PurePosixPath(path).parts
        if not parts or path != str(PurePosixPath(*parts)) or {"/", "..", "."} & set(parts):
            raise UsageError(
                f"node {spec.name!r} has a file {path!r}; write a relative path without '..', "
                "such as 'conf/server.yml'"
            )
        if len(text) > _FILE_CHARACTERS_MAX:
            raise UsageError(
                f"the file {path!r} of node {spec.name!r} has {len(text)} characters; the limit "
                f"is {_FILE_CHARACTERS_MAX}: put larger ones into its image"
            )
    for path in spec.files:
        above = next((str(p) for p in PurePosixPath(path).parents if str(p) in spec.files), None)
        if above is not None:
            raise UsageError(
                f"node {spec.name!r} has the files {above!r} and {path!r}; one name cannot be both "
                "a file and a folder"
            )


def _check_limits(spec: NodeSpec) -> None:
    if spec.user is not None and not _USER.fullmatch(spec.user):
        raise UsageError(
            f"node {spec.name!r} has the user {spec.user!r}; write it like 'postgres' or '999:999'"
        )
    if spec.memory_mib is not None and spec.memory_mib < _MEMORY_MIB_MIN:
        raise UsageError(
            f"node {spec.name!r} has memory_mib {spec.memory_mib}; give at least {_MEMORY_MIB_MIN}"
        )
    if spec.cpus is not None and not (math.isfinite(spec.cpus) and 0 < spec.cpus <= _CPUS_MAX):
        raise UsageError(
            f"node {spec.name!r} has cpus {spec.cpus}; it must be above 0 and at most {_CPUS_MAX}"
        )


def _check_container(spec: NodeSpec) -> None:
    inside = spec.container
    if inside is None:
        return
    if spec.entry is not None:
        raise UsageError(
            f"node {spec.name!r} has `container`, which is for foreign programs in Docker, but is "
            "written against `Env`; leave it out"
        )
    if spec.files or spec.setup:
        raise UsageError(
            f"node {spec.name!r} has `container` and `files` or `setup`; put the files into "
            "`container.files`, and set-up into the image"
        )
    for path in filter(None, (inside.data, *inside.files)):
        clean = PurePosixPath(path)
        if path != str(clean) or not clean.is_absolute() or ".." in clean.parts or path == "/":
            raise UsageError(
                f"node {spec.name!r} has the path {path!r} in `container`; write an absolute path "
                "without '..', such as '/var/lib/server'"
            )


def _check_variant(spec: NodeSpec, name: str, variant: Variant) -> None:
    where = f"the variant {name!r} of node {spec.name!r}"
    if not _NAME.fullmatch(name) or name == BASE:
        raise UsageError(f"{where}: its name must match {_NAME.pattern} and not be {BASE!r}")
    if variant == Variant():
        raise UsageError(f"{where} changes nothing; give it a command, config, environment, ...")
    if spec.entry is not None and variant.command is not None:
        raise UsageError(
            f"{where} has a command, but the node runs on `Env`: vary `entry` or `config`"
        )
    if spec.entry is None and (variant.entry is not None or variant.config is not None):
        raise UsageError(
            f"{where} has an entry or a config, but the node is a foreign program: vary `command`, "
            "`environment` or `image`"
        )
    if variant.command == ():
        raise UsageError(f"{where} has an empty command; leave it out to keep the node's own")


def refuse_in_simulation(nodes: Iterable[NodeSpec]) -> None:
    """Raise `UsageError` for features that only exist for real processes and containers."""
    nodes = list(nodes)
    foreign = [node.name for node in nodes if node.entry is None and not is_program(node)]
    if foreign:
        raise UsageError(
            f"the nodes {', '.join(foreign)} are foreign programs, which the simulation "
            "cannot run, unless they are Python programs ('python:MODULE:CALLABLE'); use "
            "--env process or --env docker"
        )
    for node in nodes:
        if is_program(node):
            _refuse_for_program(node)
            continue
        for form in forms_of(node).values():
            wanted = {
                "an image": form.image,
                "a dockerfile": form.dockerfile,
                "files": form.files,
                "setup commands": form.setup,
                "a readiness probe": form.ready,
                "a user": form.user,
            }
            setting = next((what for what, value in wanted.items() if value), None)
            if setting is not None:
                where = "--env docker" if form.image or form.dockerfile else "--env process, docker"
                raise UsageError(
                    f"the node {node.name!r} declares {setting}, which nothing in the simulation "
                    f"could use; it works with {where}"
                )
        for name, variant in node.variants.items():
            if variant.environment is not None:
                raise UsageError(
                    f"the variant {name!r} of node {node.name!r} changes environment variables, "
                    "which simulated nodes do not have; vary `config`, or use --env process, docker"
                )


def _refuse_for_program(node: NodeSpec) -> None:
    """Raise `UsageError` for features that a simulated program cannot have."""
    for form in forms_of(node).values():
        program_of(form)
        wanted = {
            "setup commands": form.setup,
            "a readiness command": isinstance(form.ready, ReadyCommand),
            "a user": form.user,
        }
        setting = next((what for what, value in wanted.items() if value), None)
        if setting is not None:
            raise UsageError(
                f"the program of node {node.name!r} declares {setting}, which the simulation does "
                "not have; leave it out, or use --env process"
            )


# --- variants ----------------------------------------------------------------------------------


def as_variant(spec: NodeSpec, name: str) -> NodeSpec:
    """Return the declaration of a node as its variant `name`; raises `UsageError`."""
    if name == BASE:
        return spec
    if name not in spec.variants:
        variants = ", ".join([BASE, *spec.variants])
        raise UsageError(f"node {spec.name!r} has no variant {name!r}; it has: {variants}")
    variant = spec.variants[name]
    changed = msgspec.structs.replace(
        spec,
        entry=variant.entry or spec.entry,
        config=spec.config | (variant.config or {}),
        command=variant.command or spec.command,
        environment=spec.environment | (variant.environment or {}),
    )
    if variant.image is not None or variant.dockerfile is not None:
        changed = msgspec.structs.replace(
            changed, image=variant.image, dockerfile=variant.dockerfile
        )
    return changed


def forms_of(spec: NodeSpec) -> dict[str, NodeSpec]:
    """Map the name of each variant of a node to the node's declaration as this variant."""
    return {name: as_variant(spec, name) for name in (BASE, *spec.variants)}


def words_of(spec: NodeSpec) -> list[str]:
    """Return all strings that may have placeholders, from a node's declaration and its variants."""
    if spec.container is not None:
        return []
    words = [*spec.files.values(), *(word for command in spec.setup for word in command)]
    if isinstance(spec.ready, ReadyCommand):
        words += spec.ready.command
    words += spec.clock_probe
    for form in forms_of(spec).values():
        words += [*form.command, *form.environment.values()]
    return words


# --- the order of starts -----------------------------------------------------------------------


def start_layers(nodes: Iterable[NodeSpec]) -> list[list[str]]:
    """Group nodes into layers, which start in order. Raises `UsageError` for a cycle."""
    by_name = {spec.name: spec for spec in nodes}
    sorter = graphlib.TopologicalSorter(
        {name: [n for n in spec.after if n in by_name] for name, spec in by_name.items()}
    )
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(reversed(error.args[1]))
        raise UsageError(
            f"the nodes' `after` form a cycle: {circle}; remove one of these nodes from `after`"
        ) from error
    layers = []
    position = {name: index for index, name in enumerate(by_name)}
    while sorter.is_active():
        layer = sorted(sorter.get_ready(), key=position.__getitem__)
        sorter.done(*layer)
        layers.append(layer)
    return layers


async def start_in_order(
    nodes: Mapping[str, NodeSpec],
    start: Callable[[str], Awaitable[object]],
    wait_ready: Callable[[str], Awaitable[None]],
) -> None:
    """Start all nodes, and return when all are ready.

    A node starts once the nodes in its `after` are ready. The first failure is raised once all
    other started tasks have ended.
    """

    async def start_one(name: str) -> None:
        await start(name)
        if nodes[name].ready is not None:
            await wait_ready(name)

    for layer in start_layers(nodes.values()):
        # A TaskGroup would cancel unfinished starts, which would then overlap with the teardown.
        begun = (start_one(name) for name in layer)
        for answer in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer


def start_bound_s(nodes: Mapping[str, NodeSpec], names: Iterable[str]) -> float:
    """Return the maximum time, in seconds, for which `start_down` waits for these nodes."""
    waits = (nodes[name].ready for name in names)
    return sum(ready.within_s for ready in waits if ready is not None)


async def start_down(cluster: Cluster, names: Iterable[str]) -> None:
    """Start the nodes in `names` that are down, each after the nodes in its `after`.

    Only nodes in another node's `after` are waited for. The wait for a node ends at its limit
    without an error, because checkers judge whether the node is ready.
    """
    wanted = [cluster.nodes[name] for name in names]
    awaited = {name for spec in wanted for name in spec.after}
    for layer in start_layers(wanted):
        started = [name for name in layer if cluster.state(name) is NodeState.DOWN]
        for name in started:
            await cluster.start(name)
        await asyncio.gather(*(cluster.wait_ready(name) for name in started if name in awaited))


def describe(ready: Ready) -> str:
    """Say in words when a node is ready."""
    match ready:
        case ReadyPort(port):
            return f"its port {port} accepts connections"
        case ReadyHttp(port, path):
            return f"GET {path} on its port {port} is answered with 200"
        case ReadyLog(pattern):
            return f"a line of its log matches {pattern!r}"
        case ReadyCommand(command):
            return f"{' '.join(command)!r} exits with 0"
