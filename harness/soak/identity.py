"""Identifies a soak by two digests, of its case and of the code.

Together they cover everything that determines the soak's results. The digest of the case leaves out
the seed. Two soaks with the same case digest write the same runs, so only one of them may run at a
time. If the code digest is also the same, the second soak continues where the first stopped. The
range of seeds and the number of workers do not affect results, so they are not part of the digests.

The code digest covers every file of `harness`, except the parts that workers never load. It also
covers every file of the packages whose plug-ins the case names, whether they are built in or not,
and the versions of Python and of the libraries that affect results.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator
from typing import Final

import msgspec

from harness.case import Case
from harness.faults.parser import are_words
from harness.plugins import Target
from harness.registry import load_plugin, plug_in_point
from harness.support.distributions import OWN, package_files, packages_of
from harness.verdict.judge import checker_names

NOT_OF_WORKERS: Final = (
    "harness/cli",
    "harness/determinism",
    "harness/formats",
    "harness/pytesting",
)
"""Modules that no run uses. A test checks that no worker loads them."""
LIBRARIES: Final = ("msgspec", "numpy", "pyarrow")
DIGITS: Final = 12
SCHEMA: Final = 1
"""The version of journals and run folders. A higher version restarts every soak."""


class SoakId(msgspec.Struct, frozen=True):
    """The identity of a soak: a digest of its case, environment and label, and one of the code."""

    case: str
    code: str

    def __str__(self) -> str:
        return f"{self.case}-{self.code}"


def soak_id(
    case: Case, *, environment: str, label: str | None, search: tuple[str, ...] = ()
) -> SoakId:
    """Return the identity of a soak of a planned `case`; raises `UsageError`.

    `search` contains the other values that decide which cases the seeds run. The error means that a
    plug-in does not load.
    """
    base = msgspec.structs.replace(case, seed=0, faults=None)
    content = msgspec.json.encode([SCHEMA, base, environment, label, *search], order="sorted")
    return SoakId(hashlib.sha256(content).hexdigest()[:DIGITS], code_digest(base, environment))


def code_digest(case: Case, environment: str) -> str:
    """Return a digest of the code that runs and judges `case` on this machine."""
    packages = {"harness"}
    versions: dict[str, str] = {}
    for group, name in _taking_part(case, environment):
        point = plug_in_point(group, name)
        if point is None:
            continue
        packages.add(point.module.split(".")[0])
        if point.dist is not None and point.dist.name != OWN:
            versions[point.dist.name] = point.dist.version
            packages.update(packages_of(point.dist))
    for library in LIBRARIES:
        versions[library] = importlib.metadata.version(library)
    versions["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    total = hashlib.sha256(msgspec.json.encode([SCHEMA, versions], order="sorted"))
    for package in sorted(packages):
        total.update(_package_digest(package).encode())
    return total.hexdigest()[:DIGITS]


def other_code(case: Case, environment: str, code: str | None) -> str | None:
    """Return why a soak that began with `code` must stop; `None` if the code is unchanged.

    The files are read again each time, because nodes in real environments load the current files
    when they start.
    """
    if code is None:
        return None
    _package_digest.cache_clear()
    digest = code_digest(case, environment)
    if digest == code:
        return None
    return (
        f"the code changed during the command (it began with {code}, now there is {digest}); "
        "run the same command again; it starts over with the new code"
    )


def _taking_part(case: Case, environment: str) -> Iterator[tuple[str, str]]:
    yield "environments", environment
    yield "targets", case.target
    target: Target = load_plugin("targets", case.target)
    for name in sorted({case.workload, *target.workloads}):
        yield "workloads", name
    for name in sorted({*case.nemeses, *(fault.nemesis for fault in case.faults or ())}):
        if not are_words(name):  # a fault in words has no package of its own
            yield "nemeses", name
    for name in sorted(checker_names(case)):
        yield "checkers", name


@functools.cache
def _package_digest(package: str) -> str:
    """Return a digest of the names and contents of all files of a package.

    It is cached, because a process never reloads its code.
    """
    total = hashlib.sha256()
    for name, path in package_files(package):
        if not any(name.startswith(f"{prefix}/") for prefix in NOT_OF_WORKERS):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{name} {content}\n".encode())
    return total.hexdigest()
