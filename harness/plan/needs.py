"""Checks of requirements of workloads and nemeses against the installed targets.

A workload may require options of the target (`Workload.needs`), which the user can override. A
target may list options that add roles or spares (`Target.larger`), which messages suggest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from harness.errors import HarnessError, UsageError, choices_near
from harness.plugins import Target, Workload
from harness.plugins.options import with_defaults
from harness.registry import load_all


class _Fits(Protocol):
    def __call__(self, target: Target, options: Mapping[str, Any], /) -> None:
        """Raise `HarnessError` if a target with these options does not fit."""


def needed_options(
    workload: Workload, target: Target, given: Mapping[str, Any], given_target: Mapping[str, Any]
) -> dict[str, Any]:
    """The target options that a workload with these options needs and the user did not set."""
    names = {option.name.replace("-", "_") for option in target.options}
    options = with_defaults("workload", workload.name, workload.options, given)
    of_target = with_defaults("target", target.name, target.options, given_target)
    needed = workload.needs(options, of_target)
    return {
        name: value for name, value in needed.items() if name in names and name not in given_target
    }


def flags_of(options: Mapping[str, Any]) -> str:
    """Options in the syntax of the command line."""
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in options.items()
    )


def no_vocabulary(target: Target, workload: Workload) -> UsageError:
    """The error for a target that cannot run a workload; it names targets that can."""
    able = [
        name
        for name, other in load_all("targets")
        if not isinstance(other, UsageError) and workload.vocabulary in other.vocabularies
    ]
    if able:
        fix = f"add {' or '.join(f'--target {name}' for name in able)}"
    else:
        fix = (
            "none of the installed targets can; install a package that brings one, such as one "
            "of the folder examples/"
        )
    return UsageError(
        f"the target {target.name!r} cannot run the workload {workload.name!r}, which speaks "
        f"{workload.vocabulary!r}; {fix}"
    )


def no_such_bug(bug: str, target: Target) -> UsageError:
    """The error for an unknown bug; names the target that has the bug, or the closest name."""
    start = f"the target {target.name!r} has no bug {bug!r}"
    for name, other in load_all("targets"):
        if not isinstance(other, UsageError) and bug in other.bugs:
            return UsageError(f"{start}; it is a bug of the target {name}: add --target {name}")
    see = f"harness list bugs --target {target.name}"
    return UsageError(f"{start}; {choices_near(bug, sorted(target.bugs), see=see)}")


def fitting_options(target: Target, fits: _Fits) -> Iterator[str]:
    """The options with which `target` `fits`, or else options of other targets."""
    fitting = list(_that_fit(target, fits))
    if fitting:
        yield from fitting
        return
    for name, other in load_all("targets"):
        if not isinstance(other, UsageError) and name != target.name:
            for flags in list(_that_fit(other, fits))[:1]:
                yield f"--target {name} {flags}".strip()


def _that_fit(target: Target, fits: _Fits) -> Iterator[str]:
    for options in ({}, *target.larger):
        try:
            fits(target, options)
        except HarnessError:
            continue
        yield flags_of(options)
