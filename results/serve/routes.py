"""Maps addresses to pages.

| address                       | page                                                        |
|-------------------------------|-------------------------------------------------------------|
| /                             | all runs, filtered and sorted (see `query`)                 |
| /run/NAME/RUN/                | one run                                                     |
| /run/NAME/RUN/FILE            | a file of a run; makes report.html or trace.json if missing |
| /zip/NAME/RUN.zip             | all files of a run                                          |
| /compare?run=A&run=B          | two runs, each as NAME/RUN                                  |
| /compare?label=A&label=B      | two labels; other filters apply to both                     |
| ...&ignore=bugs               | two labels whose runs may differ in bugs (or: profile)      |
| /matrix?down=D&across=D       | verdicts by two dimensions                                  |
| /trends?by=D                  | trends over labels or days                                  |
| /report/                      | the page of the last `harness report`, if there is one      |
| /api/runs /api/run/NAME/RUN /api/compare /api/matrix /api/trends | the same as JSON         |
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from harness.errors import HarnessError
from results.serve import group_pages, pages
from results.serve.archive import ARCHIVE_BYTES_MAX, archive
from results.serve.library import REPORT_PAGE, ArtefactFailed, Library
from results.serve.pages import Page, the_run
from results.serve.paths import NotThere
from results.serve.query import BadQuery
from results.serve.render import address, render, static_file
from results.serve.run_folders import ARTEFACTS
from results.serve.server import Failure, Request, Response

PIECE_BYTES: Final = 256 << 10
_TEXT: Final = "text/plain; charset=utf-8"
_TYPES: Final = {
    ".json": "application/json",
    ".parquet": "application/octet-stream",
    ".gz": "application/octet-stream",
    ".zip": "application/octet-stream",
}
# A page in a run's folder may come from an untrusted author. The sandbox gives its scripts an
# origin of their own, without access to any server.
SANDBOX: Final = (
    "sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; "
    "script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "worker-src blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGES: Final = {("report.html",), ("counterexample.html",)}
_RAW: Final = "sandbox; default-src 'none'; frame-ancestors 'none'"


class Application:
    """Answers requests about one store or lake."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._pages: dict[str, Callable[[Library, str], Page]] = {
            "": pages.runs,
            "compare": pages.compare,
            "matrix": group_pages.matrix,
            "trends": group_pages.trends,
        }

    def __call__(self, request: Request) -> Response:
        """Answer a request. An error becomes a page (or JSON, below `/api/`), with its status."""
        api = request.path.startswith("/api/")
        try:
            return self._route(_parts(request.path), request)
        except Failure as failure:
            return self._failed(failure.status, failure.text, api=api)
        except NotThere:
            return self._failed(404, "there is no such page, run or file", api=api)
        except BadQuery as error:
            return self._failed(400, str(error), api=api)
        except HarnessError as error:
            return self._failed(422, str(error), api=api)

    def _failed(self, status: int, text: str, *, api: bool) -> Response:
        if api:
            return _json({"error": text}, status)
        body = render("failure.html", status=status, text=text, library=self.library, tab="")
        return Response(status=status, body=body)

    def _route(self, parts: tuple[str, ...], request: Request) -> Response:
        head, rest = (parts[0], parts[1:]) if parts else ("", ())
        if head == "static" and len(rest) == 1:
            return _static(rest[0])
        if head == "api":
            return self._api(rest, request)
        if head in self._pages and (not rest or rest == ("",)):
            page = self._pages[head](self.library, request.query)
            body = render(page.template, library=self.library, tab=head, **page.context)
            return Response(body=body)
        if head == "run" and len(rest) >= 2:
            return self._run(rest[0], rest[1], rest[2:])
        if head == "zip" and len(rest) == 2:
            return self._zip(*rest)
        if head == "report":
            if not rest:
                return _moved("/report/")
            return self._report(rest if rest != ("",) else (REPORT_PAGE,))
        raise NotThere

    def _api(self, rest: tuple[str, ...], request: Request) -> Response:
        if len(rest) == 3 and rest[0] == "run":
            return _json(
                pages.run(self.library, the_run(self.library, f"{rest[1]}/{rest[2]}")).data
            )
        views = {"runs": "", "compare": "compare", "matrix": "matrix", "trends": "trends"}
        if len(rest) != 1 or rest[0] not in views:
            raise Failure(404, f"the API has {', '.join(views)} and run/NAME/RUN")
        return _json(self._pages[views[rest[0]]](self.library, request.query).data)

    def _run(self, name: str, run: str, file: tuple[str, ...]) -> Response:
        row = the_run(self.library, f"{name}/{run}")
        if not file:
            return _moved(address("run", name, run) + "/")
        if file == ("",):
            page = pages.run(self.library, row)
            return Response(
                body=render(page.template, library=self.library, tab="run", **page.context)
            )
        self.library.folders.folder(row)
        if len(file) == 1 and file[0] in ARTEFACTS:
            try:
                self.library.make(row, file[0])
            except ArtefactFailed as failed:
                raise Failure(422, f"{file[0]} of {row.key} cannot be made: {failed}") from failed
        number = self.library.folders.open(row, file)
        return _file(number, file[-1], is_page=file in _PAGES)

    def _zip(self, name: str, archive_name: str) -> Response:
        run = archive_name.removesuffix(".zip")
        row = the_run(self.library, f"{name}/{run}")
        self.library.folders.folder(row)
        files, cut = self.library.files(row)
        size = sum(entry.size for entry in files)
        if cut or size > ARCHIVE_BYTES_MAX:
            raise Failure(413, "the run is too large for an archive; copy its folder instead")
        return Response(
            content_type="application/zip",
            body=archive(run, files, functools.partial(self.library.folders.open, row)),
            headers=(("Content-Disposition", f'attachment; filename="{_ascii(run)}.zip"'),),
            policy=_RAW,
        )

    def _report(self, rest: tuple[str, ...]) -> Response:
        if self.library.is_remote:
            raise Failure(
                404, "the report of a lake in a bucket is in the folder where `harness report` ran"
            )
        number = self.library.report_file(rest)
        return _file(number, rest[-1], is_page=rest[-1].endswith(".html"))


def _parts(path: str) -> tuple[str, ...]:
    """Split a path, then decode each part, so that `%2f` is not a separator."""
    try:
        return (
            tuple(unquote_to_bytes(part).decode("utf-8", "strict") for part in path[1:].split("/"))
            if path != "/"
            else ()
        )
    except UnicodeError as error:
        raise NotThere from error


def _json(data: Any, status: int = 200) -> Response:
    body = msgspec.json.encode(data, enc_hook=str) + b"\n"
    return Response(status=status, content_type="application/json", body=body)


def _static(name: str) -> Response:
    file = static_file(name)
    if file is None:
        raise NotThere
    return Response(content_type=file[1], body=file[0])


def _moved(where: str) -> Response:
    return Response(status=308, headers=(("Location", where),), content_type=_TEXT)


def _file(number: int, name: str, *, is_page: bool) -> Response:
    """Make a response with an open file. Only files with `is_page` are sent as HTML."""
    size = os.fstat(number).st_size
    headers: tuple[tuple[str, str], ...] = ()
    if is_page:
        kind, policy = "text/html; charset=utf-8", SANDBOX
    else:
        kind, policy = _TYPES.get(PurePosixPath(name).suffix, _TEXT), _RAW
        if kind == "application/octet-stream":
            headers = (("Content-Disposition", f'attachment; filename="{_ascii(name)}"'),)
    return Response(
        content_type=kind, body=_Pieces(number), length=size, policy=policy, headers=headers
    )


class _Pieces(Iterator[bytes]):
    """The pieces of an open file. `close` closes the file, even if it was not read."""

    def __init__(self, number: int) -> None:
        self._file = os.fdopen(number, "rb")

    def __next__(self) -> bytes:
        piece = self._file.read(PIECE_BYTES)
        if not piece:
            self.close()
            raise StopIteration
        return piece

    def close(self) -> None:
        self._file.close()


def _ascii(name: str) -> str:
    return "".join(
        character if (character.isascii() and character.isalnum()) or character in "._- " else "_"
        for character in name
    )
