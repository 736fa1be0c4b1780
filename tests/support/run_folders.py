"""Run folders made by hand, and lakes of them, for tests that read stores."""

import contextlib
import io

from harness.cli import main
from harness.ops import Verdict
from harness.store import RunFolder, RunRecord


def keep_run(
    store, name, run, case, history, results=(), /, *,
    verdict=Verdict.VALID, replay=None, label=None, finished=True, **record,
):  # fmt: skip
    """One run as `harness run` leaves it, with `results` of checkers if there are any; its path."""
    folder = RunFolder(store, name, run)
    folder.write_case(case)
    folder.seal(history, label=label)
    if results:
        told = {"verdict": verdict} if replay is None else {"verdict": verdict, "replay": replay}
        folder.write_results(list(results), told)
    if finished:
        fields = {
            "run": run, "environment": "sim", "started": "2026-01-01T00:00:00+00:00",
            "wall_s": 1.0, "versions": {}, **record,
        }  # fmt: skip
        folder.finish(
            RunRecord(
                **fields,
                verdict=verdict,
                digest=history.digest(),
                ops=len(history.pairs),
                label=label,
            )
        )
    return folder.path


def keep_torn(store, name, run, case, ops, *, tail=b""):
    """A run whose process ended in the midst of its log; its folder, which nothing holds open."""
    folder = RunFolder(store, name, run)
    folder.write_case(case)
    log = folder.open_log()
    for op in ops:
        log.append(op)
    log.close()
    with (folder.path / "ops.log").open("ab") as file:
        file.write(tail)
    return folder.path


def ingested(store, lake, *words):
    """The lake of a store that goes into it; nothing is said."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["ingest", str(store), "--lake", str(lake), *words]) == 0
    return lake
