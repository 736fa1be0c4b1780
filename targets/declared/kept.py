"""The files that a declaration reads, either from disk or from a case.

When a case is created, the content of every file that the declaration reads is appended to the
declaration's text, in the table `[kept]`. The result is one TOML document, in which line numbers
stay the same. The case then needs no file on disk, and a changed file does not change a stored
case. Only the build context of an image stays on disk: the case has its digest, and refuses a
changed context.
"""

from __future__ import annotations

import hashlib
import json
import os  # determinism: no node runs this module
from collections.abc import Mapping
from pathlib import Path  # determinism: no node runs this module
from typing import Final

import msgspec

from harness.errors import UsageError
from harness.nodes.declaration import context_files

__all__ = ["Folder", "Kept", "bundled"]

TEXT_BYTES_MAX: Final = 1024 * 1024
TEXTS_MAX: Final = 200
CONTEXT_FILES_MAX: Final = 10_000
KEY: Final = "kept"


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[kept]`: the declaration's file and folder, and the files that it read.

    `missing` lists files that did not exist. `variables` has the shell's variables, with the value
    false for a variable that was not set. `contexts` maps folders to digests.
    """

    file: str
    folder: str
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    missing: tuple[str, ...] = ()
    variables: dict[str, str | bool] = msgspec.field(default_factory=dict)
    contexts: dict[str, str] = msgspec.field(default_factory=dict)


class Folder:
    """The folder of a declaration: reads files from disk and records them, or reads from a case."""

    def __init__(self, path: Path, *, kept: Kept | None = None) -> None:
        self.path = path
        self._kept = kept
        self._texts: dict[str, str] = {} if kept is None else dict(kept.texts)
        self._missing: set[str] = set() if kept is None else set(kept.missing)
        self._variables: dict[str, str | bool] = {} if kept is None else dict(kept.variables)
        self._contexts: dict[str, str] = {} if kept is None else dict(kept.contexts)

    @property
    def is_kept(self) -> bool:
        """Whether the files come from a case rather than from disk."""
        return self._kept is not None

    def at(self, name: str) -> Path:
        """Return the path of a file that the declaration names, relative or absolute."""
        return Path(os.path.normpath(self.path / name))

    def text(self, name: str) -> str:
        """Return the content of a text file. Raises `UsageError`."""
        text = self.optional_text(name)
        if text is None:
            raise UsageError(
                f"the file {name!r} does not exist ({self.at(name)}); correct the path"
            )
        return text

    def optional_text(self, name: str) -> str | None:
        """Return the content of a text file, or `None` if there is no such file."""
        if name in self._texts:
            return self._texts[name]
        if self._kept is not None or name in self._missing:
            return None
        try:
            data = self._read(self.at(name))
        except FileNotFoundError:
            self._missing.add(name)
            return None
        if len(self._texts) >= TEXTS_MAX:
            raise UsageError(f"it names more than {TEXTS_MAX} files; put them into an image")
        self._texts[name] = data
        return data

    @staticmethod
    def _read(path: Path) -> str:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UsageError(f"the file {str(path)!r} cannot be read: {error.strerror}") from error
        if len(data) > TEXT_BYTES_MAX:
            raise UsageError(
                f"the file {str(path)!r} has {len(data)} bytes; the limit is {TEXT_BYTES_MAX}, "
                "because a case keeps it: put it into an image"
            )
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"the file {str(path)!r} is not UTF-8 text, and a case keeps texts: put it into an "
                "image"
            ) from error

    def exists(self, name: str) -> bool:
        """Whether there is a file, or a folder with files."""
        return bool(self.files_below(name, must_exist=False))

    def files_below(self, name: str, *, must_exist: bool = True) -> dict[str, str]:
        """Map each path below a folder to the file's name. A single file has the path "".

        Raises `UsageError` if nothing exists under this name.
        """
        start = name.rstrip("/")
        below: dict[str, str] = {}
        if self._kept is not None:
            names = [each for each in self._texts if each == start or each.startswith(f"{start}/")]
            below = {each.removeprefix(start).lstrip("/"): each for each in names}
        elif self.at(start).is_dir():
            for path in sorted(self.at(start).rglob("*")):
                if path.is_file():
                    inner = str(path.relative_to(self.at(start)))
                    below[inner] = f"{start}/{inner}"
        elif self.at(start).exists():
            below = {"": start}
        if not below and must_exist:
            raise UsageError(f"{name!r} does not exist, or is an empty folder; correct the path")
        return below

    def variable(self, name: str) -> str | None:
        """Return an environment variable of the shell in which the case was created, if set."""
        if name not in self._variables and self._kept is None:
            shell = os.environ.get(name)
            self._variables[name] = False if shell is None else shell
        value = self._variables.get(name, False)
        return value if isinstance(value, str) else None

    def context(self, name: str) -> Path:
        """Return the folder of a Dockerfile, which must be unchanged since the case was created.

        Raises `UsageError` if it has changed, or if it has no Dockerfile.
        """
        path = self.at(name)
        if not (path / "Dockerfile").is_file():
            raise UsageError(
                f"{str(path)!r} must be a folder with a file named Dockerfile; correct the path, "
                "or name an `image`"
            )
        digest = _digest(path)
        if self._contexts.setdefault(name, digest) != digest:
            raise UsageError(
                f"the folder {str(path)!r}, from which an image is built, has changed since the "
                "case was made; restore it, or make a new case"
            )
        return path

    def kept(self, file: str) -> Kept:
        """Return everything that was read so far."""
        return Kept(
            file=file,
            folder=str(self.path),
            texts=self._texts,
            missing=tuple(sorted(self._missing)),
            variables=self._variables,
            contexts=self._contexts,
        )


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    files = context_files(folder)
    if len(files) > CONTEXT_FILES_MAX:
        raise UsageError(
            f"the folder {str(folder)!r} has {len(files)} files, and an image is built from at "
            f"most {CONTEXT_FILES_MAX}; build the image yourself and name it as `image`"
        )
    for name, path in files:
        written, executable = name.encode(), os.access(path, os.X_OK)
        digest.update(b"%d %d %d\n" % (len(written), executable, path.stat().st_size))
        digest.update(written)
        digest.update(path.read_bytes())
    return digest.hexdigest()


def bundled(text: str, kept: Kept) -> str:
    """Append the table `[kept]` to a declaration."""
    lines = [text.rstrip("\n"), "", f"[{KEY}]"]
    lines += [f"file = {_quoted(kept.file)}", f"folder = {_quoted(kept.folder)}"]
    lines.append(f"missing = [{', '.join(map(_quoted, kept.missing))}]")
    tables: list[tuple[str, Mapping[str, str | bool]]] = [
        ("texts", kept.texts),
        ("variables", kept.variables),
        ("contexts", kept.contexts),
    ]
    for name, table in tables:
        if table:
            lines.append(f"[{KEY}.{name}]")
            lines += [f"{_quoted(key)} = {_quoted(table[key])}" for key in sorted(table)]
    return "\n".join(lines) + "\n"


def _quoted(value: str | bool) -> str:
    """Encode a value as TOML, whose strings use the same escapes as JSON, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
