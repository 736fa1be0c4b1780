"""Plants a defect in the code of a worker while it runs a job, to test whether the run finds it.

A module of planted defects has the attribute `DEFECTS`, which maps names to
`harness.plugins.PlantedDefect`. Workers import the module by its name, so it must be on their path.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping

from harness.errors import UsageError, unknown_name
from harness.plugins import PlantedDefect
from harness.support.distributions import package_files
from harness.support.importing import import_module


def load_defects(module: str) -> Mapping[str, PlantedDefect]:
    """Return the defects of a module; raises `UsageError` if it does not load, or has none."""
    try:
        defects = getattr(import_module(module), "DEFECTS", None)
    except ImportError as error:
        raise UsageError(
            f"the module of defects {module!r} does not load: {error}; give the name of a module "
            "that can be imported from this folder, such as tests.mutants"
        ) from error
    if not isinstance(defects, Mapping) or not all(
        isinstance(name, str) and isinstance(defect, PlantedDefect)
        for name, defect in defects.items()
    ):
        raise UsageError(
            f"the module {module!r} has no mapping DEFECTS of names to "
            "harness.plugins.PlantedDefect; see docs/exam.md"
        )
    return defects


@contextlib.contextmanager
def planted(place: str | None) -> Iterator[None]:
    """Plant the defect `MODULE:NAME` inside this context; `None` plants nothing.

    Raises `UsageError` if there is no such defect.
    """
    if place is None:
        yield
        return
    module, _, name = place.partition(":")
    defects = load_defects(module)
    if name not in defects:
        raise unknown_name("defect", name, defects)
    with defects[name].plant():
        yield


def defect_digest(place: str | None) -> str:
    """Return a digest of a defect and all Python files of its package; "" for `None`."""
    if place is None:
        return ""
    total = hashlib.sha256(place.encode())
    for name, path in package_files(place.partition(":")[0]):
        if name.endswith(".py"):
            total.update(f"{name} ".encode() + path.read_bytes())
    return total.hexdigest()
