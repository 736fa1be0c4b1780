"""Makes the artefacts of a finished run, such as its page. Each chosen reporter writes one.

Reporters run after `run.json` is written. A run is complete without them, so a failing reporter
only causes a note. A reporter whose artefact is many times as large as the run has `default =
False`, and only runs on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.output import note
from harness.errors import UsageError, choices_near
from harness.plugins import Reporter
from harness.registry import load_plugin, plugin_names

REPORTERS_DEFAULT: Final = "default"
REPORTERS_ALL: Final = "all"
REPORTERS_NONE: Final = "none"


def chosen_reporters(text: str) -> list[str]:
    """Return the reporters that `--reporters` selects; raises `UsageError` for an unknown one."""
    installed = plugin_names("reporters")
    if text == REPORTERS_DEFAULT:
        return [name for name in installed if _made_by_default(name)]
    if text in {REPORTERS_ALL, REPORTERS_NONE}:
        return installed if text == REPORTERS_ALL else []
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in installed:
            choices = [*installed, REPORTERS_DEFAULT, REPORTERS_ALL, REPORTERS_NONE]
            raise UsageError(f"--reporters names {name!r}; {choices_near(name, choices)}")
    return list(dict.fromkeys(names))


def _made_by_default(name: str) -> bool:
    """Whether a reporter runs by default. A broken one does, so that its failure is noted."""
    try:
        reporter: Reporter = load_plugin("reporters", name)
    except UsageError:
        return True
    return reporter.default


def make_artefacts(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Run these reporters. Map each one that succeeds to the path of its artefact."""
    made: dict[str, str] = {}
    for name in names:
        try:
            reporter: Reporter = load_plugin("reporters", name)
            made[name] = str(reporter.write(folder))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an artefact that fails changes no verdict
            note(f"harness: the reporter {name!r} failed: {error}; the run itself is complete")
    return made
