"""The registry of planted defects, which are patches that last for a `with` block."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One defect; `area` is the affected part of the target, `workload` the one that soaks run."""

    name: str
    what: str
    area: str
    patch: Patch
    workload: str | None = None


MUTANTS: dict[str, Mutant] = {}


def mutant(name: str, area: str, workload: str | None = None) -> Callable[[Patch], Patch]:
    """Register a patch; the first line of its docstring describes the defect.

    `workload` is for defects that random workloads reveal too rarely.
    """

    def register(patch: Patch) -> Patch:
        assert name not in MUTANTS, name
        assert patch.__doc__ is not None, name
        what = patch.__doc__.splitlines()[0].rstrip(".")
        MUTANTS[name] = Mutant(name, what, area, patch, workload)
        return patch

    return register


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant this defect, or none, for the duration of the block."""
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            MUTANTS[name].patch(patch)
        yield
