"""Options that targets and workloads add to the command line, and their allowed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harness.errors import UsageError, choices_near


class Option(msgspec.Struct, frozen=True):
    """A command-line option that a target or workload adds: `--name VALUE`.

    Its type is the type of the default. `within` gives inclusive bounds for a number, and `among`
    the allowed strings. Other values are refused before the plug-in sees them.
    """

    name: str  # with dashes, as on the command line
    default: int | float | str | bool
    help: str
    within: tuple[float, float] | None = None
    among: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name with underscores, which is the option's key in mappings of option values."""
        return self.name.replace("-", "_")

    def checked(self, value: Any, owner: str) -> Any:
        """Convert `value` to the option's type. Raises a `UsageError` that mentions the `owner`."""
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise UsageError(
                f"the option {self.name!r} of {owner} is {value!r}; it takes "
                f"{'a number' if wanted in {int, float} else f'a {wanted.__name__}'}"
            )
        if self.within is not None and isinstance(value, int | float):
            least, most = self.within
            if not least <= value <= most:  # also true for NaN
                raise UsageError(f"--{self.name} is {value}; it must be in {least} .. {most}")
        if self.among and value not in self.among:
            raise UsageError(f"--{self.name} is {value!r}; {choices_near(value, self.among)}")
        return value


def default_values(options: Iterable[Option]) -> dict[str, Any]:
    """Return the defaults of `options`, by key."""
    return {option.key: option.default for option in options}


def with_defaults(
    kind: str, owner: str, options: Sequence[Option], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `given`, checked and completed with the defaults; raises `UsageError`."""
    by_name = {option.key: option for option in options}
    for name in given:
        if name not in by_name:
            raise UsageError(
                f"the {kind} {owner!r} has no option {name!r}; "
                f"{choices_near(name, sorted(by_name))}"
            )
    return {
        name: option.checked(given.get(name, option.default), f"the {kind} {owner!r}")
        for name, option in by_name.items()
    }
