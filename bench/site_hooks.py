"""Hooks by which mkdocs generates pages while it builds the site.

`cli.md` has the output of `--help-all` of each verb. `contributing.md` and `changelog.md` are the
files at the top of the repository. Links to files outside `docs/` become text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from harness.cli import main
from harness.cli.parser import known_verbs

ROOT: Final = Path(__file__).parent.parent
OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
INSIDE: Final = re.compile(r"\]\(docs/")
COLUMNS: Final = "100"
CLI: Final = """\
# Command line

Look up here what each verb of `harness` does, and all its options. In a terminal,
`harness VERB --help` prints the common ones.

Exit codes: 0 valid or permitted, 1 invalid, 2 unknown (nothing was proven), 254 usage error, 255
crash.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    made = {
        "cli.md": command_line(),
        "contributing.md": top_page("CONTRIBUTING.md"),
        "changelog.md": top_page("CHANGELOG.md"),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files outside of the site by their text."""
    return OUTSIDE.sub(r"\1", markdown)


def top_page(name: str) -> str:
    """Return the page `name` from the top of the repository, with links adapted to `docs/`."""
    return INSIDE.sub("](", (ROOT / name).read_text(encoding="utf-8"))


def command_line() -> str:
    """Make the page about the command line, with one section per verb."""
    parts = [CLI, f"```text\n{help_of()}```\n"]
    parts += [f"## harness {verb}\n\n```text\n{help_of(verb)}```\n" for verb in known_verbs()]
    return "\n".join(parts)


def help_of(*words: str) -> str:
    """Return the help with all options of a verb, as on a terminal of 100 columns."""
    output = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        for flag in ("--help-all", "--help"):
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
                code = main([*words, flag])
            if code == 0 and output.getvalue():
                return output.getvalue()
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    raise RuntimeError(f"harness {' '.join(words)} prints no help")
