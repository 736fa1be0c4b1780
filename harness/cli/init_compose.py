"""Declares the system in a Compose file, and writes a CI workflow (`harness init --compose FILE`).

The target `declared` reads the Compose file and asks about everything that the file does not show.
On a terminal, the user answers. Without a terminal, or with `--yes`, the defaults are used and
listed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note, say
from harness.cli.project import FILE
from harness.cli.run.system_option import DECLARED
from harness.errors import InfrastructureError, UsageError, counted, listed
from harness.plugins import Target
from harness.registry import load_plugin

WORKFLOW: Final = ".github/workflows/harness.yml"
_WORKFLOW_TEXT: Final = """\
# Runs the system of {compose} under faults, as harness.toml says. The job fails unless the verdict
# is valid: 1 means invalid, 2 unknown, 254 a mistake in a file, 255 that the system did not start.
name: harness

on:
  push:
    branches: [main]
  pull_request:
  workflow_dispatch:

permissions:
  contents: read

jobs:
  chaos:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v5

      - uses: actions/setup-python@v6
        with:
          python-version: "3.12"

      - name: install
        run: pip install 'catalog-harness[{extras}]'

      - name: run
        run: harness run

      - uses: actions/upload-artifact@v4
        if: failure()
        with:
          name: harness-run
          path: store
          if-no-files-found: ignore
"""


def draft_from(compose: Path, without: Sequence[str], *, ask_nothing: bool, force: bool) -> None:
    """Write the declaration and the workflow, and print where each declared value comes from.

    Raises `UsageError` before anything is written.
    """
    _check_absent((FILE, WORKFLOW), force=force)
    asks = not ask_nothing and sys.stdin is not None and sys.stdin.isatty()
    target: Target = load_plugin("targets", DECLARED)
    draft = target.draft_file(compose, _answer if asks else _default, without)
    workflow = _WORKFLOW_TEXT.format(compose=compose, extras=",".join(draft.extras))
    write_files({FILE: draft.text, WORKFLOW: workflow}, force=force)
    for line in draft.seen:
        say(f"seen     {line}")
    for line in draft.assumed:
        say(f"assumed  {line}")
    say(f"wrote {FILE} ({counted(len(draft.text.splitlines()), 'line')}) and {WORKFLOW}")
    say(f"check the lines of {FILE} that have a comment, then `harness run`")


def write_files(texts: Mapping[str, str], *, force: bool) -> None:
    """Write files below the current folder. Raises `UsageError` if one exists, unless `force`."""
    _check_absent(tuple(texts), force=force)
    # Files in subfolders come first: if a subfolder cannot be made, no file has been written yet.
    for name in sorted(texts, key=lambda name: Path(name).parent == Path()):
        text = texts[name]
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InfrastructureError(f"{name} cannot be written: {error.strerror}") from error


def _check_absent(names: Sequence[str], *, force: bool) -> None:
    present = [name for name in names if Path(name).exists()]
    if present and not force:
        raise UsageError(
            f"{listed(present, limit=3)} exist{'s' if len(present) == 1 else ''} already; edit "
            f"{'it' if len(present) == 1 else 'them'}, or give --force to replace"
        )


def _default(question: str, usual: str) -> str:
    del question
    return usual


def _answer(question: str, usual: str) -> str:
    note(f"{question}{f' [{usual}]' if usual else ''}:")
    line = sys.stdin.readline()
    if not line:
        raise UsageError(
            f"the input ended at the question {question!r}; answer it, or give --yes to assume "
            "the defaults"
        )
    return line.strip() or usual
