"""A git repository: commits, temporary work trees, and git's own bisection.

All work happens in work trees below one temporary folder. The repository's own files, index and
branch stay as they are. After a killed search, remove the temporary
folder `harness-bisect-*` and call `git worktree prune`.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import InfrastructureError, UsageError

PREFIX: Final = "harness-bisect-"
GIT_TIMEOUT_S: Final = 300.0
_HASH: Final = re.compile(r"[0-9a-f]{40,64}")
_FIRST_BAD: Final = re.compile(r"^([0-9a-f]{40,64}) is the first", re.MULTILINE)
_LEFT: Final = re.compile(r"(\d+) revisions? left")
_ABOUT: Final = "%H%x00%aI%x00%s"


class Commit(msgspec.Struct, frozen=True):
    """A commit of the repository; `date` is the author's, in ISO 8601."""

    hash: str
    date: str
    subject: str

    @property
    def short(self) -> str:
        return self.hash[:12]


class Mark(enum.StrEnum):
    """The result of testing a commit, in the words of `git bisect`."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


class Repository:
    """A git repository; raises `UsageError` if the folder is not in a repository."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("git") is None:
            raise UsageError("this machine lacks `git`; install it (Debian's package git)")
        if not folder.is_dir():
            raise UsageError(f"--repo is {str(folder)!r}, which is not a folder")
        answer = _git(folder, "rev-parse", "--show-toplevel")
        if answer.returncode:
            raise UsageError(
                f"--repo is {str(folder)!r}, which is not in a git repository with files; give the "
                "folder of a clone"
            )
        self.root = Path(answer.stdout.strip())

    def commit(self, name: str, what: str) -> Commit:
        """Return the commit called `name`; raises `UsageError` if there is none.

        The error begins with `what`, the name of the argument.
        """
        wanted = f"{name}^{{commit}}"
        answer = _git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
        if answer.returncode or not _HASH.fullmatch(answer.stdout.strip()):
            raise UsageError(
                f"{what} is {name!r}, which is not a commit of {self.root}; `git log` shows "
                "its commits, and a shallow clone needs `git fetch --unshallow`"
            )
        return self.about(answer.stdout.strip())

    def about(self, name: str) -> Commit:
        """Return the commit with this hash."""
        return Commit(*_asked(self.root, "show", "-s", f"--format={_ABOUT}", name).split("\0"))

    def require_path(self, good: Commit, bad: Commit) -> None:
        """Raise `UsageError` unless `good` is an ancestor of `bad`."""
        if good.hash == bad.hash:
            raise UsageError(f"GOOD and BAD are the same commit {good.short}; name two commits")
        if _git(self.root, "merge-base", "--is-ancestor", good.hash, bad.hash).returncode:
            raise UsageError(
                f"GOOD ({good.short}) is not an ancestor of BAD ({bad.short}), so no commit "
                "between them can be the first bad one; name an ancestor, such as the commit that "
                "`git merge-base` prints"
            )

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a temporary folder; at the end remove it with all work trees in it."""
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _git(self.root, "worktree", "prune")

    @contextlib.contextmanager
    def work_tree(self, commit: Commit, below: Path) -> Iterator[Path]:
        """Yield a fresh work tree of `commit` in the folder `below`; remove it at the end."""
        folder = Path(tempfile.mkdtemp(prefix=f"{commit.short}-", dir=below))
        try:
            _asked(self.root, "worktree", "add", "--detach", "--force", str(folder), commit.hash)
            yield folder
        finally:
            _git(self.root, "worktree", "remove", "--force", "--force", str(folder))
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def bisection(self, good: Commit, bad: Commit, below: Path) -> Iterator[Bisection]:
        """Yield a bisection between two commits.

        It has an empty work tree of its own, and so does not disturb a bisection that the user has
        started in this repository.
        """
        folder = below / "bisection"
        try:
            _asked(
                *(self.root, "worktree", "add", "--detach", "--no-checkout"),
                *(str(folder), bad.hash),
            )
            yield Bisection(self, folder, good, bad)
        finally:
            _git(self.root, "worktree", "remove", "--force", "--force", str(folder))


class Bisection:
    """A running `git bisect`. Test the commit `current` until `first_bad` or `left` is set."""

    def __init__(self, repository: Repository, folder: Path, good: Commit, bad: Commit) -> None:
        self.first_bad: Commit | None = None
        self.left: tuple[Commit, ...] = ()
        """the commits that may be the first bad one, if skipped commits hide which one it is"""
        self.left_after = 0
        """the maximum number of commits that are left to test after the current one"""
        self._repository = repository
        self._folder = folder
        self._take(_asked(folder, "bisect", "start", "--no-checkout", bad.hash, good.hash))

    @property
    def current(self) -> Commit | None:
        """The commit to test next; `None` at the end."""
        if self.first_bad is not None or self.left:
            return None
        return self._repository.about(_asked(self._folder, "rev-parse", "BISECT_HEAD"))

    def mark(self, mark: Mark) -> None:
        """Record the result of the current commit."""
        answer = _git(self._folder, "bisect", mark.value)
        if answer.returncode not in {0, 2}:
            raise InfrastructureError(f"git bisect {mark.value} failed: {answer.stderr.strip()}")
        self._take(answer.stdout)

    def _take(self, output: str) -> None:
        about = self._repository.about
        if (left := _LEFT.search(output)) is not None:
            self.left_after = int(left[1])
        if (match := _FIRST_BAD.search(output)) is not None:
            self.first_bad = about(match[1])
        elif "only 'skip'ped commits left" in output:
            self.left = tuple(map(about, re.findall(r"^([0-9a-f]{40,64})$", output, re.MULTILINE)))


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git with English output, and without hooks, pager, prompts or the user's settings."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    } | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat"}
    try:
        return subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"`git {words[0]}` took more than {GIT_TIMEOUT_S:g} s in {folder}"
        ) from error


def _asked(folder: Path, *words: str) -> str:
    answer = _git(folder, *words)
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or [f"code {answer.returncode}"]
        raise InfrastructureError(f"`git {' '.join(words[:2])}` failed in {folder}: {lines[-1]}")
    return answer.stdout.strip()
