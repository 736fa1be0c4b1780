"""How long `harness serve` takes over a store of 10,000 runs: the first look, and pages after it.

    python bench/serve.py [RUNS]

Prints one line a step: milliseconds, and for the index the memory that it holds.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from results.serve import group_pages, pages
from results.serve.render import render
from results.serve.run_index import ScanCache, scan
from results.serve.store_library import StoreLibrary
from tests.results.serve.stores import big_store

T = TypeVar("T")


def measured(label: str, work: Callable[[], T]) -> T:
    """Run `work`, print how long it took, return what it returned."""
    begin_s = time.perf_counter()
    result = work()
    print(f"{label:44} {(time.perf_counter() - begin_s) * 1000:9.1f} ms")
    return result


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    folder = Path(tempfile.mkdtemp(prefix="serve-bench-"))
    try:
        store = measured(f"make a store of {count} runs", lambda: big_store(folder / "s", count))
        cache = ScanCache()
        measured("first scan", lambda: scan(store, cache))
        measured("second scan, nothing changed", lambda: scan(store, cache))
        library = StoreLibrary(store)
        measured("first scan again, for the pages", library.table)
        library._next_scan_s = float("inf")

        def page(text: str) -> bytes:
            made = pages.runs(library, text)
            return render(made.template, library=library, tab="", **made.context)

        measured("list, first time (templates compile)", lambda: page(""))
        measured("list", lambda: page(""))
        measured("list, filtered, sorted, page 3", lambda: page("q=kill&sort=-ops&page=3"))
        measured("matrix", lambda: group_pages.matrix(library, "down=nemesis&across=label"))
        tracemalloc.start()
        again = ScanCache()
        scan(store, again)
        print(f"{'memory of the index':44} {tracemalloc.get_traced_memory()[0] / 1e6:9.1f} MB")
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{'peak of this process':44} {peak_kb / 1024:9.1f} MB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
