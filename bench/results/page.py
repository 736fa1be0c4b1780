"""Measures how smoothly the page of a large run moves: `python -m bench.results.page`.

Makes a synthetic run from a seed, with clients, faults, leaders, tables and some unknown outcomes.
Writes its page, and opens it in headless Chromium without a GPU. Moves and zooms through it for
some seconds, one step per frame of `requestAnimationFrame`. Prints the times to make and to open
the page, and for each kind of movement the median frames per second and the worst frame. The exit
code is 1 if a median is below 30 frames per second.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from harness.case import Case
from harness.ops import CheckResult, History, Verdict
from results.run.page import PageReporter
from tests.results.run.page.runs import MS, Script, write_run
from tests.support.browser import find_chromium

FPS_BAR = 30.0
KINDS = ("create", "alter", "rename", "delete", "get", "get", "get", "list", "locate")
NODES = ("m1", "m2", "m3")

# Moves the page for `seconds`; returns the ms between frames, and the number of visible ops.
MOVES = """
async ([kind, seconds]) => {
  const { view, page } = window.harnessPage;
  const frames = [];
  const begin = performance.now();
  const whole = view.end - view.begin;
  view.fit();
  if (kind === "pan wide") view.set(view.begin, view.begin + whole / 2);
  if (kind === "pan") view.set(view.begin, view.begin + whole / 20);
  if (kind === "pan close") view.set(view.begin, view.begin + whole / 400);
  let before = await new Promise(requestAnimationFrame);
  let at = 0, by = 1;
  while (performance.now() - begin < seconds * 1000) {
    at += by;
    if (kind === "zoom") {
      const share = (1 + Math.cos((performance.now() - begin) / 1000)) / 2;
      const span = whole * Math.pow(0.0005, 1 - share);
      view.set(view.begin + whole * 0.4 - span / 2, view.begin + whole * 0.4 + span / 2);
    } else if (kind === "scroll page") {
      window.scrollBy(0, at % 80 < 40 ? 12 : -12);
      view.pan(0.0001);
    } else {
      view.pan(0.012 * by);
      if (view.to >= view.end) view.set(view.begin, view.begin + view.to - view.from);
    }
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - before);
    before = now;
  }
  return [frames, page.visibleOps];
}
"""


def main() -> int:
    """Make and measure the page, and print the results; return 1 if a median is too low."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=100_000, metavar="N", help="(default: 100000)")
    parser.add_argument("--clients", type=int, default=20, metavar="N", help="(default: 20)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of each movement")
    parser.add_argument("--chromium", default=find_chromium(), metavar="PATH")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run in this store")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_run(parsed.keep or Path(temporary), parsed.ops, parsed.clients)
        begin = time.perf_counter()
        page = PageReporter().write(folder)
        made_s = time.perf_counter() - begin
        print(f"{parsed.ops:,} operations by {parsed.clients} clients")
        print(f"page made in {made_s:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        return measure(page, parsed.chromium, parsed.seconds)


def measure(page_file: Path, chromium: str, seconds: float) -> int:
    """Move the page in Chromium; print one line per kind of movement; return the exit code."""
    from playwright.sync_api import sync_playwright

    slow = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        begin = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        page.evaluate("() => new Promise(requestAnimationFrame)")
        print(f"opened and drawn in {time.perf_counter() - begin:.1f} s ({browser.version})")
        print(f"{'move':14} {'fps median':>10} {'fps p5':>8} {'worst frame':>12} {'frames':>7}")
        for kind in ("pan wide", "pan", "pan close", "zoom", "scroll page"):
            frames, _ = page.evaluate(MOVES, [kind, seconds])
            ordered = sorted(frames)
            fps = 1000 / statistics.median(ordered)
            tail = 1000 / ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
            slow = slow or fps < FPS_BAR
            print(f"{kind:14} {fps:10.1f} {tail:8.1f} {ordered[-1]:9.0f} ms {len(frames):7}")
        browser.close()
    return 1 if slow else 0


def make_run(store: Path, count: int, clients: int) -> Path:
    """Make a run folder with `count` operations, which depend only on the arguments."""
    history = make_history(random.Random(1), count, clients)
    middle = [pair.invoke.index for pair in history.pairs[count // 2 : count // 2 + 3]]
    result = CheckResult(
        "linearizable-catalog",
        Verdict.INVALID,
        "a synthetic anomaly",
        ("Three operations in the middle show an anomaly.",),
        tuple(middle),
    )
    case = Case(seed=1, concurrency=clients, nemeses=("partition-leader", "kill-leader"))
    name = f"bench-page-{count}-ops-{time.time_ns()}"
    return write_run(
        store, history, [result], name=name, case=case, replay="python -m bench.results.page"
    )


def make_history(rng: random.Random, count: int, clients: int) -> History:
    """Make a history of clients that are always busy, with faults and leaders every ten seconds."""
    script = Script()
    free = [(rng.randrange(10**6), process) for process in range(clients)]
    tables = [f"t{number}" for number in range(40)]
    last = 0
    for number in range(count):
        at = min(range(clients), key=lambda slot: free[slot][0])
        start, process = free[at]
        kind = KINDS[rng.randrange(len(KINDS))]
        end = start + int(rng.lognormvariate(15.0, 0.7))
        draw = rng.random()
        outcome = "ok" if draw < 0.75 else "fail" if draw < 0.97 else "info"
        name = rng.choice(tables)
        table = f"{hash_of(name, number // 900):032x}"
        asked = {"name": name, "nonce": f"n{number}"}
        value = {"result": "ok", "table_id": table, "schema_version": number % 7, "term": 1}
        error = {} if outcome == "ok" else {"error": "SERVICE_UNAVAILABLE: not now"}
        node = NODES[(start // 10**10) % 3]
        times = (start / MS, end / MS)
        script.op(*times, process, kind, asked, outcome, value, node=node, **error)
        following = process + clients if outcome == "info" else process
        free[at] = (end + rng.randrange(2 * 10**6), following)
        last = max(last, end // MS)
    for name, at in (("setup", 0), ("chaos", last // 50), ("final", last * 99 // 100)):
        script.fact(at, "phase", {"phase": name})
    for number, at in enumerate(range(5_000, last, 10_000)):
        node, nemesis = NODES[number % 3], ("partition-leader", "kill-leader")[number % 2]
        about = {"fault": f"{nemesis}-{number}", "targets": [node], "note": f"hit {node}"}
        script.nemesis(at, nemesis, action="inject", **about)
        script.nemesis(at + 4_000, nemesis, action="heal", **about)
        script.fact(at + 1_000, "leader", {"node": NODES[(number + 1) % 3], "term": number + 2})
    return script.history()


def hash_of(name: str, age: int) -> int:
    """Return a table id that depends on the table's name and age."""
    return random.Random(f"{name}/{age}").getrandbits(128)


if __name__ == "__main__":
    raise SystemExit(main())
