"""The modules of one life of a program. They share no state with the modules of other lives.

A life is the time from a start of a node to its end. Each life imports the program's modules and
libraries again. Their code is compiled once per process, with ordered sets (`ordered`). Modules of
the standard library are shared with the harness, except the ones that have state or touch the
world. Some of these are replaced by substitutes (`substitutes`). The others are copied: a life
executes their Python source again, so that the copies use the substitutes.

Native modules of a library are not imported, so that the library falls back on pure Python. A
library without such a fallback is shared between lives.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final

from harness.environments.sim.programs.ordered import NAMES, compile_ordered

COPIED: Final = frozenset(
    {
        *("os", "posixpath", "genericpath", "pathlib", "shutil", "tempfile", "glob", "fnmatch"),
        *("logging", "random", "secrets", "traceback", "warnings", "pickle", "shelve"),
        *("fileinput", "linecache", "mimetypes", "getpass", "sched", "dbm", "statistics"),
        *("argparse", "optparse", "pprint", "configparser", "gzip", "zipfile", "tarfile", "codecs"),
    }
)
"""The standard-library modules of which each life gets a private copy."""

REFUSED: Final[dict[str, str]] = {
    "multiprocessing": "several nodes: a simulated program is one process",
    "subprocess": "a node of its own for the other program",
    "socketserver": "asyncio.start_server",
    "selectors": "asyncio streams or transports",
    "select": "asyncio streams or transports",
    "mmap": "open() and read()",
    "pty": "a log",
    "ctypes": "pure Python",
    "sqlite3": "a file in the data folder: SQLite writes to the real disk",
    "_posixsubprocess": "a node of its own for the other program",
    "_multiprocessing": "several nodes: a simulated program is one process",
    "resource": "the limits of NodeSpec",
    "readline": "arguments or a connection",
    "curses": "a log",
    "syslog": "logging",
    "http.client": "aiohttp, or asyncio.open_connection",
    "urllib.request": "aiohttp, or asyncio.open_connection",
    "ftplib": "asyncio.open_connection",
    "smtplib": "asyncio.open_connection",
    "xmlrpc": "asyncio.open_connection",
}
"""Modules that a simulated program cannot use, each with an alternative for the error message."""

_importing = threading.RLock()
"""The lock that is held during imports, while a life's private modules are in `sys.modules`."""


class NativeCodeError(ImportError):
    """Raised for a library's native module, because the simulation imports no native code."""


class _Code:
    """Caches the specs and the compiled code of modules, for all lives in this process."""

    specs: ClassVar[dict[tuple[str, tuple[str, ...], bool], ModuleSpec | None]] = {}
    code: ClassVar[dict[str, CodeType | None]] = {}
    # Libraries that lives share. Some only work with their native modules. One would store
    # functions of a life in the shared module `typing`, which would keep the life in memory.
    shared: ClassVar[dict[str, None]] = {"typing_extensions": None}


def forget_types() -> None:
    """Remove the classes and functions of all lives from the caches of the module `typing`."""
    typing.clear_overloads()
    for clean_up in typing._cleanups:  # type: ignore[attr-defined] # noqa: SLF001
        clean_up()


class Modules:
    """The modules of one life by name, and the `__import__` of the life's code."""

    def __init__(
        self,
        substitutes: Mapping[str, Callable[[Modules], ModuleType]],
        replaced: Mapping[str, Any],
        refuse: Callable[[str, str], Any],
        folders: tuple[str, ...] = (),
    ) -> None:
        """Create the modules of a life.

        `substitutes` maps names to functions that make substitute modules. `replaced` maps the
        names of builtins to the program's own versions. `refuse` ends the run with an error.
        Modules are looked up in `folders` first.
        """
        self.loaded: dict[str, ModuleType] = {}
        self._substitutes = substitutes
        self._refuse = refuse
        self._folders = folders
        self._depth = 0
        self._hidden: dict[str, ModuleType | None] = {}
        self.builtins = {**builtins.__dict__, **NAMES, **replaced, "__import__": self.import_}

    # --- what the program calls -------------------------------------------------------------

    def import_(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        """The program's version of `__import__`."""
        del locals
        absolute = name
        if level:
            package = (globals or {}).get("__package__") or (globals or {}).get("__name__", "")
            absolute = importlib.util.resolve_name("." * level + name, package)
        module = self.load(absolute)
        if not fromlist:
            return self.loaded[absolute.partition(".")[0]] if not level else module
        if hasattr(module, "__path__"):
            wanted = [*fromlist]
            if "*" in wanted:
                wanted += getattr(module, "__all__", ())
            for each in wanted:
                if each != "*" and not hasattr(module, each):
                    self._load_part(f"{absolute}.{each}")
        return module

    def _load_part(self, name: str) -> None:
        try:
            self.load(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise

    def load(self, name: str) -> ModuleType:
        """Import a module by its absolute name. Returns this module, not its package."""
        module = self.loaded.get(name)
        if module is not None:
            return module
        with self._importing():
            top = name.partition(".")[0]
            try:
                return self._load(name)
            except NativeCodeError:
                if top in sys.stdlib_module_names or "." in name or top in _Code.shared:
                    raise
                for each in [n for n in self.loaded if n.partition(".")[0] == top]:
                    del self.loaded[each]
                _Code.shared[top] = None
                return self._load(name)

    # --- loading ----------------------------------------------------------------------------

    @contextmanager
    def _importing(self) -> Iterator[None]:
        """Keep the life's modules in `sys.modules` until the outermost import is done.

        Decorators such as `dataclass` look up the module of a class there.
        """
        with _importing:
            self._depth += 1
            if self._depth == 1:
                for name, module in self.loaded.items():
                    self._show(name, module)
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    for name, hidden in self._hidden.items():
                        if hidden is None:
                            sys.modules.pop(name, None)
                        else:
                            sys.modules[name] = hidden
                    self._hidden.clear()

    def _show(self, name: str, module: ModuleType) -> None:
        if sys.modules.get(name) is not module and not _is_standard(name):
            self._hidden.setdefault(name, sys.modules.get(name))
            sys.modules[name] = module

    def _load(self, name: str) -> ModuleType:
        parent, _, last = name.rpartition(".")
        if parent:
            holder = self.load(parent)
            if name in self.loaded:
                return self.loaded[name]
        if name in self._substitutes:
            module = self.loaded[name] = self._substitutes[name](self)
        elif name in REFUSED or parent in REFUSED:
            module = self.loaded[name] = self._refusing(name)
        elif self._is_shared(name):
            module = self.loaded[name] = importlib.import_module(name)
        else:
            module = self._load_private(name, holder if parent else None)
        if parent and (not self._is_shared(parent) or not hasattr(holder, last)):
            setattr(holder, last, module)
        return module

    @staticmethod
    def _is_shared(name: str) -> bool:
        top = name.partition(".")[0]
        if _is_standard(name):
            return top not in COPIED
        return top in _Code.shared

    def _load_private(self, name: str, holder: ModuleType | None) -> ModuleType:
        path = None if holder is None else tuple(getattr(holder, "__path__", ()))
        if holder is not None and not hasattr(holder, "__path__"):
            raise ModuleNotFoundError(
                f"No module named {name!r}; {holder.__name__!r} is not a package", name=name
            )
        spec = find_module(name, self._folders if path is None else path, within=holder is not None)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if isinstance(spec.loader, ExtensionFileLoader):
            raise NativeCodeError(
                f"{name} is native code, and the simulation imports only Python", name=name
            )
        module = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = self.builtins
        self.loaded[name] = module
        self._show(name, module)
        code = _code_of(spec)
        if code is not None:
            try:
                exec(code, module.__dict__)  # noqa: S102 - this is the import of a module
            except BaseException:
                self.loaded.pop(name, None)
                raise
        return self.loaded.get(name, module)

    def copy_of(self, name: str) -> ModuleType:
        """Return this life's private copy of a standard-library module."""
        return self._load_private(name, None)

    def _refusing(self, name: str) -> ModuleType:
        """Return a module that can be imported, but whose functions and classes end the run."""
        real = importlib.import_module(name)
        module = _Refusing(name)
        refuse, instead = self._refuse, REFUSED.get(name) or REFUSED[name.partition(".")[0]]

        def refused(attribute: str) -> Any:
            value = getattr(real, attribute)
            if attribute.startswith("__") or not callable(value):
                return value
            if isinstance(value, type):
                return _refused_class(value, lambda: refuse(f"{name}.{attribute}", instead))
            return lambda *_, **__: refuse(f"{name}.{attribute}", instead)

        module.__dict__["__getattr__"] = refused
        if hasattr(real, "__path__"):
            module.__path__ = []
        return module


class _Refusing(ModuleType):
    """A module that can be imported but not used (see `Modules._refusing`)."""


def _refused_class(real: type, refuse: Callable[[], Any]) -> type:
    """Return a subclass of `real` that cannot be instantiated."""
    if issubclass(real, BaseException):
        return real
    try:
        return type(real.__name__, (real,), {"__new__": lambda *_, **__: refuse()})
    except TypeError:
        return type(real.__name__, (), {"__new__": lambda *_, **__: refuse()})


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def find_module(name: str, folders: tuple[str, ...], *, within: bool = False) -> ModuleSpec | None:
    """Find a module in `folders`, and, if it is not `within` a package, in `sys.path`."""
    key = name, folders, within
    if key not in _Code.specs:
        spec = PathFinder.find_spec(name, [*folders, *(() if within else sys.path)])
        _Code.specs[key] = spec or _by_finders(name, list(folders) if within else None)
    return _Code.specs[key]


def _by_finders(name: str, places: list[str] | None) -> ModuleSpec | None:
    """Ask all other finders, such as the finders of editable installations."""
    for finder in sys.meta_path:
        if finder is not PathFinder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, places)
            if spec is not None:
                return spec
    return None


def _code_of(spec: ModuleSpec) -> CodeType | None:
    key = spec.origin or spec.name
    if key not in _Code.code:
        loader: Any = spec.loader
        if loader is None or spec.origin is None:
            _Code.code[key] = None
        elif spec.origin.endswith(".py"):
            _Code.code[key] = compile_ordered(loader.get_data(spec.origin), spec.origin)
        else:
            _Code.code[key] = loader.get_code(spec.name)
    return _Code.code[key]
