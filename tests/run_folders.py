"""Run folders made by hand, for whoever reads stores."""

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
                **fields, verdict=verdict, digest=history.digest(), ops=len(history), label=label
            )
        )
    return folder.path
