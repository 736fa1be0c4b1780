"""Hand-written run folders, and lakes made of them, for tests that read stores."""

import contextlib
import io

from harness.cli import main
from harness.ops import Verdict
from harness.store import RunFolder, RunRecord


def keep_run(
    store, name, run, case, history, results=(), /, *,
    verdict=Verdict.VALID, replay=None, label=None, finished=True, **record,
):  # fmt: skip
    """Write one run as `harness run` does, with `results` if given; return its path."""
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
    """Write a run whose process died while writing the log; return its folder."""
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
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["ingest", str(store), "--lake", str(lake), *words]) == 0
    return lake
