"""Imports from the harness's top-level packages, even if a folder of the user has the same name.

A user's repository may also have folders called `targets`, `nemesis`, `checkers`, `workloads` or
`results`. If Python searches the user's folder first (as in `python -m pytest`), the user's package
hides the harness's package. So this module adds the harness's folder to the `__path__` of the
user's package.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_ROOT: Final = Path(__file__).parents[2]
_OWN: Final = frozenset({"targets", "nemesis", "checkers", "workloads", "results"})
_WAY_OUT: Final = (
    "rename it, or start Python with -P (PYTHONSAFEPATH=1), so that it is not found first"
)

_EXTRA: Final = re.compile(r"([\w.-]+).*\bextra\s*==\s*['\"]([\w.-]+)['\"]")
"""Matches a required package, and the extra that requires it, in a distribution's metadata."""
_SEPARATOR: Final = re.compile(r"[-_.]")  # `my-plugin` may have the module `my_plugin`


def import_module(name: str) -> ModuleType:
    """Import a module by its dotted name; raises `ImportError`.

    A user's package `targets` or `checkers` does not hide the harness's package with that name.
    """
    top = name.partition(".")[0]
    if top in _OWN:
        _add_place(top)
    return importlib.import_module(name)


def _add_place(top: str) -> None:
    """Make Python also search the harness's packages for submodules of this package."""
    package, folder = importlib.import_module(top), str(_ROOT / top)
    places = getattr(package, "__path__", None)
    if places is None:
        raise ImportError(
            f"{package.__file__} hides the package {top!r} of catalog-harness; {_WAY_OUT}"
        )
    if folder not in places and Path(folder).is_dir():
        package.__path__ = [*places, folder]


def hidden_by(name: str) -> str:
    """Return a sentence about the user's file that hides the harness's module `name`, or "".

    The sentence ends with the fix.
    """
    module, top = sys.modules.get(name), name.partition(".")[0]
    file = getattr(module, "__file__", None)
    if top not in _OWN or file is None or Path(file).is_relative_to(_ROOT / top):
        return ""
    return f"{file} hides the module {name!r} of catalog-harness; {_WAY_OUT}"


def missing_extra(error: BaseException, distribution: Distribution) -> tuple[str, str] | None:
    """Return the package that `error` did not find, and the extra that would install it.

    The extra belongs to the distribution. Returns `None` if no extra installs the package.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = _SEPARATOR.sub("", error.name.partition(".")[0]).lower()
    for package, extra in _EXTRA.findall("\n".join(distribution.requires or ())):
        if _SEPARATOR.sub("", package).lower() == module:
            return package, extra
    return None
