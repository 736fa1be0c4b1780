"""The registry of planted defects, which are patches that last for a `with` block."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.replacing import Patch, instead


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One defect, in the part `area` of the target. Soaks run `workload`, or draw one if `None`."""

    name: str
    what: str
    area: str
    patch: Patch
    workload: str | None = None


MUTANTS: dict[str, Mutant] = {}


def mutant(
    area: str, owner: Any = None, attribute: str = "", *, workload: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a patch; the first line of its docstring describes the defect.

    With an `owner`, the decorated function replaces an attribute, and gets the original as its
    first argument. `workload` is for defects that the drawn workloads show too rarely.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")
        assert name not in MUTANTS, name
        assert function.__doc__ is not None, name
        what = function.__doc__.splitlines()[0].rstrip(".")
        patch = function if owner is None else instead(owner, attribute)(function)
        MUTANTS[name] = Mutant(name, what, area, patch, workload)
        return function

    return register


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant this defect, or none, for the duration of the block."""
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            MUTANTS[name].patch(patch)
        yield
