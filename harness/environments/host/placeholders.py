"""Fills the placeholders in nodes' commands, files and variables (`harness.cluster.NodeSpec`).

Each environment provides its own values. The folder of a package is looked up only if a placeholder
`{package:P}` names the package; this does not run the package's code.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, all_suffixes
from pathlib import Path
from typing import Final, NamedTuple

from harness.cluster import NodeSpec
from harness.errors import UsageError
from harness.nodes.deployment import words_of

FILES_MAX: Final = 10_000

_KNOWN: Final = (
    "{host} {host:NODE} {data} {files} {name} {port:N} {peer:NODE:N} {address:NODE:N} {package:P}"
)
_PACKAGE_PATH: Final = re.compile(r"\{package:([^{}]+)\}(?:/([\w.+-]+))?")
_PLACEHOLDER: Final = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")


def placeholders(words: Iterable[str]) -> Iterator[re.Match[str]]:
    """Yield the placeholders in `words`; group 1 is the kind, group 2 follows the colon."""
    return (match for word in words for match in _PLACEHOLDER.finditer(word))


def fill_in(
    word: str, spec: NodeSpec, values: Mapping[str, str], folder_of: Callable[[str], str]
) -> str:
    """Fill the placeholders of one word; raises `UsageError` for an unknown one.

    `values` maps placeholders such as `port:7051` to their values. `folder_of` returns the folder
    of a package.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] == "package" and match[2]:
            return folder_of(match[2])
        value = {"name": spec.name, **values}.get(match[0][1:-1])
        if value is not None:
            return value
        declared, peers = (
            sorted(name.removeprefix(kind) for name in values if name.startswith(kind))
            for kind in ("port:", "peer:")
        )
        raise UsageError(
            f"node {spec.name!r}: the placeholder {match[0]!r} is unknown; placeholders are "
            f"{_KNOWN}, the node's own ports are {declared}, peers are {peers}"
        )

    return _PLACEHOLDER.sub(value, word)


def check_packages(specs: Iterable[NodeSpec]) -> None:
    """Raise `UsageError` for a `{package:P}` with a missing package or file."""
    for spec in specs:
        for path in packages_named(words_of(spec)):
            brought_by(path)


class PackagePath(NamedTuple):
    """The parts of `{package:P}/name`. `name` is a file or folder, and may be empty."""

    package: str
    name: str = ""


def packages_named(words: Iterable[str]) -> list[PackagePath]:
    """Return the packages that placeholders `{package:P}` in `words` name, sorted."""
    names = {
        PackagePath(match[1], match[2] or "")
        for word in words
        for match in _PACKAGE_PATH.finditer(word)
    }
    return sorted(names)


def find_module(name: str) -> ModuleSpec | None:
    """Find an installed top-level package or module; `None` if it is missing."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def located(package: str) -> list[Path]:
    """Return a package's folders, or a module's file; raises `UsageError` if missing."""
    spec = find_module(package)
    paths: list[Path] = []
    if spec is not None and spec.submodule_search_locations:
        paths = [path for path in map(Path, spec.submodule_search_locations) if path.is_dir()]
    elif spec is not None and spec.has_location and spec.origin is not None:
        paths = [path for path in [Path(spec.origin)] if path.is_file()]
    if not paths:
        raise UsageError(
            f"the package or module {package!r}, which an entry or a {{package:P}} of a node "
            "names, has no folder or file here; install its distribution into the harness's "
            "environment"
        )
    return paths


def package_folder(package: str) -> Path:
    """Return the folder that contains `package`; raises `UsageError` if it is missing."""
    top, *inner = package.split(".")
    for path in located(top):
        last = path.joinpath(*inner)
        names = [last.parent / f"{last.name}{suffix}" for suffix in ("", *all_suffixes())]
        if any(each.exists() for each in names):
            return last.parent
    raise UsageError(f"{{package:{package}}}: the package {top!r} has no {'.'.join(inner)!r}")


def brought_by(path: PackagePath) -> dict[str, Path]:
    """Map relative paths to the files that `{package:P}` adds to a node's container.

    For a package, these are all files of its top-level package. For a module, these are the files
    that its distribution installs in the same folder. A file or folder whose name follows the
    placeholder is included. Paths are relative to the parent folder of the top-level package.
    Raises `UsageError` for a missing file, and for too many files.
    """
    folder = package_folder(path.package)
    top, *inner = path.package.split(".")
    places = located(top)
    files: dict[str, Path] = {}
    for place in places:
        beside = [place] if place.is_dir() else _beside(place)
        files |= files_of(place.parent, beside)
    if path.name and not (folder / path.name).exists():
        raise UsageError(
            f"{{package:{path.package}}}/{path.name} is missing: {folder} has no {path.name!r}; "
            "declare the file as package data of its distribution, or correct the name"
        )
    if path.name and not inner:
        files |= files_of(folder, [folder / path.name])
    return files


def is_shared(folder: Path) -> bool:
    """Whether Python installs modules or distributions (`*.dist-info`) directly in this folder."""
    paths = sysconfig.get_paths()
    ours = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return str(folder) in ours or any(folder.glob("*.dist-info"))


def _beside(module: Path) -> list[Path]:
    """Return the paths of a module and of the files that its distribution installs next to it.

    If only one distribution uses the folder (see `is_shared`), this is the whole folder.
    """
    folder = module.parent
    if not is_shared(folder):
        return [folder]
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        files = [Path(str(file)) for file in distribution.files or ()]
        if Path(module.name) in files:
            brought = [file for file in files if not file.parts[0].endswith((".dist-info", ".."))]
            return [folder / file for file in brought]
    return [module]


def files_of(folder: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Map relative paths to the files at and below `paths`, sorted.

    Paths are relative to `folder`. Hidden files, virtual environments and build metadata are left
    out. Raises `UsageError` for more than `FILES_MAX` files.
    """
    files: dict[str, Path] = {}
    left = list(paths)
    while left:
        path = left.pop()
        if path.is_dir():
            if not (_leads_up(path) or (path / "pyvenv.cfg").exists()):
                left += [each for each in path.iterdir() if not _is_passed_over(each.name)]
        elif path.is_file():
            files[path.relative_to(folder).as_posix()] = path
        if len(files) > FILES_MAX:
            raise UsageError(
                f"{folder} has more than {FILES_MAX} files, and a `{{package:P}}` would copy all "
                "files to nodes; put the files that a node needs into a package of their own"
            )
    return dict(sorted(files.items()))


def _leads_up(folder: Path) -> bool:
    """Whether `folder` is a symbolic link to one of its own parent folders."""
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name.endswith(".egg-info")
