"""Makes the page of one run: the file `report.html` in its folder, to read, keep and share.

`build` makes the data, and `render` puts it into the template. The page's code is plain JavaScript
in `assets/`. docs/page.md explains the page's content and controls.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.plugins import API_VERSION, Reporter
from harness.store import load_run
from results.lake.log.refusals import failure_of
from results.run.page.build import build
from results.run.page.render import render
from results.run.page.summary import read_results

__all__ = ["PageReporter", "build", "read_results", "render"]


class PageReporter(Reporter):
    """The reporter `page`: writes `report.html` into the folder of a run."""

    api_version = API_VERSION
    name = "page"
    doc = "report.html: verdict, timeline, plots, tables and logs in one file"

    def write(self, folder: Path) -> Path:
        """Make the page of the run in `folder`; raise `UsageError` if `folder` has no run."""
        text = render(build(load_run(folder), read_results(folder)))
        path = folder / "report.html"
        temporary = folder / f".report.html.{os.getpid()}.part"
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise failure_of(error, f"cannot write {path}: {error.strerror}") from error
        return path
