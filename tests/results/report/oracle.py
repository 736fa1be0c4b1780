"""Every number of a report again, by other means: plain Python over `History` objects.

Nothing of `results` is used. Where the report sweeps, this loops over everything; where it works
with buckets, windows and SQL, this sorts lists. Rows are dictionaries with the columns of the
answers, in any order of rows.
"""

import itertools
import math
from collections import defaultdict
from pathlib import Path

import msgspec

from harness.checking import checkers_of, judge
from harness.signatures import rule_of, signature
from harness.store import load_run
from tests.results.report.oracle_at_scale import AtScale

READS = {"get", "list", "locate", "is-create-done", "is-alter-done", "read"}
S = 1_000_000_000
RANK = {"valid": 0, "permitted": 1, "unknown": 2, "invalid": 3}


class Run:
    """One run, read through `load_run` and judged again."""

    def __init__(self, folder: Path) -> None:
        stored = load_run(folder)
        self.key = f"{folder.parent.name}/{folder.name}"
        self.case, self.history, self.record = stored.case, stored.history, stored.record
        judgement = judge(self.history, self.case, checkers_of(self.case))
        self.results = judgement.results
        self.verdict = judgement.verdict.value
        self.end = max((op.time for op in self.history), default=0)
        self.ops = [self._op(pair) for pair in self.history.pairs]
        self.faults = self._faults()
        self.outages = {kind: self._outages(kind) for kind in ("mutation", "read")}
        self.label = self.record.label if self.record else None
        self.nemeses = "+".join(sorted(set(self.case.nemeses)))
        self.bugs = "+".join(sorted(set(self.case.bugs)))
        leaders = [op for op in self.history if op.process == "harness" and op.f == "leader"]
        self.phases = [op for op in self.history if op.process == "harness" and op.f == "phase"]
        self.elections = leaders[1:]
        self.population = None  # numbered by the oracle, which knows all runs

    @property
    def alike(self):
        """What runs of one population share: everything but the seed and what it planned."""
        bare = msgspec.structs.replace(self.case, seed=0, faults=None)
        return self.label or "", self.case.workload, self.nemeses, self.bugs, repr(bare)

    def _op(self, pair):
        done = pair.completion
        kind = "info" if done is None else done.type.value
        no = kind == "fail" and isinstance(done.value, dict) and "result" in done.value
        f, value = pair.invoke.f, pair.invoke.value
        only_reads = f == "txn" and {mop[0] for mop in value} == {"r"}
        return {
            "f": "txn r" if only_reads else f,
            "kind": "read" if f in READS or only_reads else "mutation",
            "start": pair.invoke.time,
            "end": self.end if done is None else done.time,
            "line": None if done is None else done.index,
            "type": kind,
            "answered": kind == "ok" or no,
            "refused": no,
            "error": None
            if done is None or done.error is None
            else done.error.partition(":")[0].strip()[:80],
            "node": None if done is None else done.node,
            "latency": None if done is None else done.time - pair.invoke.time,
        }

    def _faults(self):
        found = []
        nemesis_ops = [op for op in self.history if op.process == "nemesis"]
        for at, op in enumerate(nemesis_ops):
            if op.value["action"] != "inject":
                continue
            later = nemesis_ops[at + 1 :] if op.value["targets"] else []
            heal = next(
                (
                    o
                    for o in later
                    if o.value["action"] == "heal" and o.value["fault"] == op.value["fault"]
                ),
                None,
            )
            end = op.time if not op.value["targets"] else heal.time if heal else self.end
            found.append(
                {
                    "nemesis": op.f,
                    "fault": op.value["fault"],
                    "start": op.time,
                    "end": end,
                    "hit": bool(op.value["targets"]),
                    "heal": heal,
                    "bite": heal.value["bite"]["count"] if heal else None,
                }
            )
        return found

    def active(self, time):
        return "+".join(
            sorted({f["nemesis"] for f in self.faults if f["start"] <= time < f["end"]})
        )

    def phase(self, time):
        name = "before"
        for op in self.phases:
            if op.time <= time:
                name = op.value["phase"]
        return name

    def chaos(self):
        times = [(op.time, op.value["phase"]) for op in self.history if op.f == "phase"]
        begin = next(time for time, name in times if name == "chaos")
        return begin, min([time for time, _ in times if time > begin], default=self.end)

    def _outages(self, kind):
        """By definition: in each gap between answers, cover by operations, bridge, measure."""
        ops = [op for op in self.ops if op["kind"] == kind]
        answers = sorted({op["end"] for op in ops if op["answered"] and op["line"] is not None})
        found = []
        for a, b in itertools.pairwise([0, *answers, self.end]):
            inside = [
                (max(op["start"], a), min(op["end"], b))
                for op in ops
                if a <= op["start"] < b or (op["start"] < a < op["end"])
            ]
            inside.sort()
            while inside:
                start, end = inside.pop(0)
                while inside and inside[0][0] - end <= S:
                    end = max(end, inside.pop(0)[1])
                if end - start >= S // 2:
                    how = "idle" if end < b else "answered" if b in answers else "end"
                    found.append((start, end, how))
        return found

    def down(self, kind, start, end):
        """Unavailable time within an interval."""
        return sum(max(0, min(b, end) - max(a, start)) for a, b, _ in self.outages[kind])

    def split(self, nemesis):
        """The chaos phase cut at every edge of the nemesis's faults: (start, end, active)."""
        begin, end = self.chaos()
        own = [f for f in self.faults if f["nemesis"] == nemesis]
        cuts = {begin, end, *(t for f in own for t in (f["start"], f["end"]) if begin < t < end)}
        return [
            (a, b, any(f["start"] <= a < f["end"] for f in own))
            for a, b in itertools.pairwise(sorted(cuts))
        ]

    def struck_by(self):
        """The nemeses of the case and of the history, but for "none"."""
        return sorted({*self.case.nemeses, *(f["nemesis"] for f in self.faults)} - {"none"})


def middle(value):
    """The middle of the bucket of a latency: 5 bits after the leading one."""
    value = max(0, value)
    if value < 32:
        return value
    width = 2 ** (len(bin(value)) - 2 - 6)
    return value // width * width + width // 2


def rank(values, permille):
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(permille * len(ordered) / 1000)) - 1]


def quantiles(values):
    names = {"p50_ns": 500, "p95_ns": 950, "p99_ns": 990, "p999_ns": 999, "max_ns": 1000}
    return {"ok": len(values), **{name: rank(values, q) for name, q in names.items()}}


def wilson(hits, n):
    """The roots of the score equation (p - x)^2 = z^2 x (1 - x) / n."""
    z2 = 1.959963984540054**2
    a, b, c = 1 + z2 / n, -2 * hits / n - z2 / n, (hits / n) ** 2
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def grouped(items, *keys):
    """Items by the values of `keys` (functions)."""
    found = defaultdict(list)
    for item in items:
        found[tuple(key(item) for key in keys)].append(item)
    return found


def tally(runs):
    return {
        "runs": len(runs),
        **{name: sum(run.verdict == name for run in runs) for name in RANK},
    }


class Oracle(AtScale):
    """All answers over a store."""

    verdicts = tuple(RANK)
    wilson = staticmethod(wilson)
    middle = staticmethod(middle)
    rank = staticmethod(rank)
    quantiles = staticmethod(quantiles)

    def __init__(self, store: Path) -> None:
        folders = sorted(path.parent for path in store.glob("*/*/case.json"))
        self.store = store
        self.runs = [Run(folder) for folder in folders if not folder.is_symlink()]
        self.all_ops = [(run, op) for run in self.runs for op in run.ops]
        kinds = sorted({run.alike for run in self.runs})
        assert len({kind[:4] for kind in kinds}) == len(kinds), "else hashes order them"
        for run in self.runs:
            run.population = kinds.index(run.alike) + 1

    # --- verdicts ----------------------------------------------------------------------------

    def by_population(self, rows, *keys):
        """`grouped`, with the population of the run of each item as the first key."""
        return grouped(rows, lambda item: item[0].population, *keys)

    def populations(self):
        cells = grouped(self.runs, lambda run: run.population)
        return [
            {
                "population": number,
                "label": runs[0].label,
                "workload": runs[0].case.workload,
                "asked": runs[0].nemeses,
                "bugs": runs[0].bugs,
                "environment": "sim",
                "target": "kudu",
                "profile": "strict",
                **tally(runs),
                "ops": sum(len(run.ops) for run in runs),
                "info": sum(op["type"] == "info" for run in runs for op in run.ops),
                "unanswered": sum(
                    op["type"] == "fail" and not op["refused"] for run in runs for op in run.ops
                ),
                "length_ns": sum(run.end for run in runs),
                "first_started": min(run.record.started for run in runs),
            }
            for (number,), runs in cells.items()
        ]

    def checkers(self):
        found = [(run, result) for run in self.runs for result in run.results]
        return [
            {
                "population": population,
                "checker": name,
                "results": len(items),
                **{v: sum(r.verdict.value == v for _, r in items) for v in RANK},
                "crashed": 0,
            }
            for (population, name), items in self.by_population(
                found, lambda item: item[1].checker
            ).items()
        ]

    def judged(self):
        """As far as the page shows it."""
        return [
            {
                "run": run.key,
                "verdict": run.verdict,
                "seed": run.case.seed,
                "ops": len(run.ops),
                "faults": len(run.faults),
                "elections": len(run.elections),
                "length_ns": run.end,
            }
            for run in self.runs
        ]

    def signatures(self):
        cells = grouped(
            self.failing_runs(),
            lambda r: r["verdict"],
            lambda r: r["bugs"],
            lambda r: r["signature"],
        )
        rows = []
        for (verdict, bugs, text), items in cells.items():
            first = min(items, key=lambda item: (item["seed"], item["run"]))
            numbers = sorted({item["population"] for item in items})
            rows.append(
                {
                    "verdict": verdict,
                    "bugs": bugs,
                    "signature": text,
                    "target": "kudu",
                    "runs": len(items),
                    "populations": "+".join(map(str, numbers)),
                    "first_run": first["run"],
                    "first_seed": first["seed"],
                    "checker": first["checker"],
                    "rule": first["rule"],
                    "reason": first["reason"],
                    **self.seen(items),
                }
            )
        return rows

    def failing_runs(self):
        rows = []
        for run in self.runs:
            if run.verdict == "valid":
                continue
            bad = [r for r in run.results if r.verdict.value != "valid"]
            first = min(bad, key=lambda r: -RANK[r.verdict.value])  # in the order of the case
            rows.append(
                {
                    "run": run.key,
                    "population": run.population,
                    "verdict": run.verdict,
                    "target": "kudu",
                    "environment": "sim",
                    "nemeses": run.nemeses,
                    "bugs": run.bugs,
                    "seed": run.case.seed,
                    "recorded": run.record.verdict.value,
                    "checker": first.checker,
                    "rule": rule_of(first),
                    "signature": signature(first, run.history),
                    "reason": first.reason,
                    "day": self.day(run),
                    "code": self.code(run),
                }
            )
        return rows

    def changed_verdicts(self):
        return []

    def permitted(self):
        return []

    def detection_rates(self):
        rows = []
        for (population, bug), items in self._bugged().items():
            runs = sorted((run for run, _ in items), key=lambda run: (run.case.seed, run.key))
            hits = [at for at, run in enumerate(runs) if run.verdict == "invalid"]
            low, high = wilson(len(hits), len(runs))
            rows.append(
                {
                    "bug": bug,
                    "population": population,
                    "runs": len(runs),
                    "detected": len(hits),
                    "unknown": sum(run.verdict == "unknown" for run in runs),
                    "rate": len(hits) / len(runs),
                    "low": low,
                    "high": high,
                    "length_ns": sum(run.end for run in runs),
                    "runs_to_first": hits[0] + 1 if hits else None,
                    "ns_to_first": sum(r.end for r in runs[: hits[0] + 1]) if hits else None,
                    "first_run": runs[hits[0]].key if hits else None,
                }
            )
        return rows

    def _bugged(self):
        every = [(run, bug) for run in self.runs for bug in sorted(set(run.case.bugs))]
        return self.by_population(every, lambda item: item[1])

    def detection_by_nemesis(self):
        return [
            {
                "bug": bug,
                "population": population,
                "nemeses": nemeses,
                "runs": len(items),
                "detected": sum(run.verdict == "invalid" for run, _ in items),
            }
            for (population, bug), own in self._bugged().items()
            for (nemeses,), items in grouped(own, lambda item: item[0].nemeses).items()
        ]

    def detection_by_checker(self):
        found = [
            (bug, population, result.checker)
            for (population, bug), items in self._bugged().items()
            for run, _ in items
            for result in run.results
            if result.verdict.value == "invalid"
        ]
        return [
            {
                "bug": bug,
                "population": population,
                "checker": checker,
                "detected": found.count(cell),
            }
            for cell in sorted(set(found))
            for bug, population, checker in [cell]
        ]

    def clean_rates(self):
        clean = [(run,) for run in self.runs if not run.case.bugs]
        rows = []
        for (population,), items in self.by_population(clean).items():
            runs = [run for (run,) in items]
            bad = sum(run.verdict == "invalid" for run in runs)
            unknown = sum(run.verdict == "unknown" for run in runs)
            known = len(runs) - unknown
            low, high = wilson(bad, known) if known else (0.0, 1.0)
            rows.append(
                {
                    "population": population,
                    "runs": len(runs),
                    "invalid": bad,
                    "unknown": unknown,
                    "rate": bad / known if known else None,
                    "low": low,
                    "high": high,
                    "below": None if bad else 1 - 0.05 ** (1 / known) if known else 1.0,
                    "length_ns": sum(run.end for run in runs),
                }
            )
        return rows

    # --- operations --------------------------------------------------------------------------

    def op_counts(self):
        return [
            {
                "population": population,
                "f": f,
                "ops": len(items),
                **{t: sum(op["type"] == t for _, op in items) for t in ("ok", "fail", "info")},
                "refused": sum(op["refused"] for _, op in items),
            }
            for (population, f), items in self.by_population(
                self.all_ops, lambda item: item[1]["f"]
            ).items()
        ]

    def errors(self):
        bad = [item for item in self.all_ops if item[1]["error"] is not None]
        names = ("f", "type", "error", "answered")
        cells = self.by_population(bad, *(lambda item, name=name: item[1][name] for name in names))
        return [
            {
                **dict(
                    zip(("population", "f", "type", "error_code", "answered"), cell, strict=True)
                ),
                "n": len(items),
                "runs": len({run.key for run, _ in items}),
            }
            for cell, items in cells.items()
        ]

    def _latency(self, *keys):
        done = [item for item in self.all_ops if item[1]["type"] == "ok"]
        return self.by_population(done, *(key for _, key in keys), lambda item: item[1]["f"]), [
            "population",
            *(name for name, _ in keys),
            "f",
        ]

    def _latency_rows(self, *keys):
        cells, names = self._latency(*keys)
        return [
            {
                **dict(zip(names, cell, strict=True)),
                **quantiles([middle(op["latency"]) for _, op in items]),
            }
            for cell, items in cells.items()
        ]

    def latency_by_f(self):
        return self._latency_rows()

    def latency_by_active(self):
        return self._latency_rows(("active", lambda i: i[0].active(i[1]["start"])))

    def latency_by_phase(self):
        return self._latency_rows(("phase", lambda i: i[0].phase(i[1]["start"])))

    def latency_by_node(self):
        return self._latency_rows(("node", lambda i: i[1]["node"] or ""))

    def latency_by_run(self):
        return self._latency_rows(("run", lambda i: i[0].key))

    def info_losses(self):
        lost = [
            (run, nemesis, op["f"])
            for run, op in self.all_ops
            if op["type"] == "info"
            for nemesis in (run.active(op["start"]) or "none").split("+")
        ]
        return [
            {
                "population": population,
                "nemesis": nemesis,
                "f": f,
                "n": len(items),
                "runs": len({run.key for run, _, _ in items}),
            }
            for (population, nemesis, f), items in self.by_population(
                lost, lambda i: i[1], lambda i: i[2]
            ).items()
        ]

    # --- faults ------------------------------------------------------------------------------

    def uplift_counts(self):
        """(population, nemesis, outcome) -> rows of hits, trials with and without"""
        found = defaultdict(list)
        for run in self.runs:
            begin, end = run.chaos()
            chaos = [op for op in run.ops if begin <= op["start"] < end]
            for nemesis in run.struck_by():

                def count(chosen, bad, nemesis=nemesis, run=run):
                    row = [0, 0, 0, 0]
                    for op in chosen:
                        at = 0 if nemesis in run.active(op["start"]).split("+") else 2
                        row[at] += bad(op)
                        row[at + 1] += 1
                    return tuple(row)

                found[run.population, nemesis, "unanswered"].append(
                    count(chaos, lambda op: op["type"] == "fail" and not op["answered"])
                )
                found[run.population, nemesis, "info"].append(
                    count(chaos, lambda op: op["type"] == "info")
                )
                for f in sorted({op["f"] for op in chaos}):
                    own = [op for op in chaos if op["f"] == f]
                    found[run.population, nemesis, f"{f} fails or is lost"].append(
                        count(own, lambda op: not op["answered"])
                    )
                for kind in ("mutation", "read"):
                    row = [0, 0, 0, 0]
                    for a, b, active in run.split(nemesis):
                        row[0 if active else 2] += run.down(kind, a, b)
                        row[1 if active else 3] += b - a
                    found[run.population, nemesis, f"{kind}s down"].append(tuple(row))
        return found

    def uplift_ratios(self):
        rows = []
        for (population, nemesis, outcome), every in self.uplift_counts().items():
            counts = [row for row in every if row[1] or row[3]]
            a, n, b, m = (sum(row[i] for row in counts) for i in range(4))
            row = {
                "population": population,
                "nemesis": nemesis,
                "outcome": outcome,
                "with_rate": a / n if n else None,
                "without_rate": b / m if m else None,
                "runs": len(counts),
                "ratio": (a / n) / (b / m) if n and b else None,
            }
            rows.append(
                {**row, "log_se": self.log_se(counts) if a and b and len(counts) > 1 else None}
            )
        return rows

    def availability(self):
        cells = defaultdict(lambda: [set(), 0, 0, 0])
        for run in self.runs:
            for nemesis in run.struck_by():
                for active in (True, False):
                    cells[run.population, nemesis, active][0].add(run.key)
                for a, b, active in run.split(nemesis):
                    cell = cells[run.population, nemesis, active]
                    cell[1] += b - a
                    cell[2] += run.down("mutation", a, b)
                    cell[3] += run.down("read", a, b)
        return [
            {
                "population": population,
                "nemesis": nemesis,
                "active": active,
                "runs": len(cell[0]),
                "ns": cell[1],
                "mutation_down_ns": cell[2],
                "read_down_ns": cell[3],
            }
            for (population, nemesis, active), cell in cells.items()
        ]

    def _all_faults(self):
        return [(run, fault) for run in self.runs for fault in run.faults]

    def faults(self):
        rows = []
        for (population, nemesis), items in self.by_population(
            self._all_faults(), lambda i: i[1]["nemesis"]
        ).items():
            downs = {
                kind: [run.down(kind, f["start"], f["end"]) for run, f in items]
                for kind in ("mutation", "read")
            }
            rows.append(
                {
                    "population": population,
                    "nemesis": nemesis,
                    "runs": len({run.key for run, _ in items}),
                    "faults": len(items),
                    "hit": sum(f["hit"] for _, f in items),
                    "healed": sum(f["heal"] is not None for _, f in items),
                    "bit": sum((f["bite"] or 0) > 0 for _, f in items),
                    "active_ns": sum(f["end"] - f["start"] for _, f in items),
                    "mutation_down_ns": sum(downs["mutation"]),
                    "read_down_ns": sum(downs["read"]),
                    "mutation_down_max_ns": max(downs["mutation"]),
                    "read_down_max_ns": max(downs["read"]),
                }
            )
        return rows

    def outages(self):
        found = [
            (run, run.active(start), kind, end - start, how)
            for run in self.runs
            for kind, outages in run.outages.items()
            for start, end, how in outages
        ]
        return [
            {
                "population": population,
                "active": active,
                "kind": kind,
                "outages": len(items),
                "runs": len({i[0].key for i in items}),
                "total_ns": sum(i[3] for i in items),
                "longest_ns": max(i[3] for i in items),
                "unended": sum(i[4] != "answered" for i in items),
            }
            for (population, active, kind), items in self.by_population(
                found, lambda i: i[1], lambda i: i[2]
            ).items()
        ]

    def outage_after_heal(self):
        rows = []
        healed = [(run, f) for run, f in self._all_faults() if f["heal"] is not None]
        for (population, nemesis), items in self.by_population(
            healed, lambda i: i[1]["nemesis"]
        ).items():
            for kind in ("mutation", "read"):
                left, never = [], 0
                for run, fault in items:
                    for start, end, how in run.outages[kind]:
                        if start <= fault["end"] < end:
                            if how == "answered":
                                left.append(end - fault["end"])
                            else:
                                never += 1
                rows.append(
                    {
                        "population": population,
                        "nemesis": nemesis,
                        "kind": kind,
                        "heals": len(items),
                        "in_outage": len(left),
                        "never": never,
                        "p50_ns": middle(rank(left, 500)) if left else None,
                        "max_ns": max(left, default=None),
                    }
                )
        return rows

    def recovery(self):
        found = defaultdict(list)
        for run, fault in self._all_faults():
            if fault["heal"] is None:
                continue
            line, time = fault["heal"].index, fault["heal"].time
            for f in {op["f"] for op in run.ops}:
                later = [
                    op
                    for op in run.ops
                    if op["f"] == f and (op["line"] is None or op["line"] > line)
                ]
                tried = [max(0, op["start"] - time) for op in later]
                ok = [op["end"] - time for op in later if op["type"] == "ok"]
                found[run.population, fault["nemesis"], f].append(
                    (min(tried, default=None), min(ok, default=None))
                )
        rows = []
        for (population, nemesis, f), items in found.items():
            oks = [ok for _, ok in items if ok is not None]
            waits = [ok - tried for tried, ok in items if ok is not None]
            rows.append(
                {
                    "population": population,
                    "nemesis": nemesis,
                    "f": f,
                    "heals": len(items),
                    "untried": sum(tried is None for tried, _ in items),
                    "never": sum(tried is not None and ok is None for tried, ok in items),
                    "waited_p50_ns": middle(rank(waits, 500)) if waits else None,
                    "waited_p95_ns": middle(rank(waits, 950)) if waits else None,
                    "waited_max_ns": max(waits, default=None),
                    "ok_p50_ns": middle(rank(oks, 500)) if oks else None,
                    "ok_max_ns": max(oks, default=None),
                }
            )
        return rows

    def elections(self):
        return [
            {
                "population": population,
                "runs": len(runs),
                "elections": sum(len(run.elections) for run in runs),
                "least": min(len(run.elections) for run in runs),
                "most": max(len(run.elections) for run in runs),
                "runs_without": sum(not run.elections for run in runs),
            }
            for (population,), runs in grouped(self.runs, lambda run: run.population).items()
        ]

    def election_causes(self):
        found = [
            (run, run.active(op.time), op.value["term"])
            for run in self.runs
            for op in run.elections
        ]
        return [
            {
                "population": population,
                "active": active,
                "elections": len(items),
                "runs": len({i[0].key for i in items}),
                "highest_term": max(i[2] for i in items),
            }
            for (population, active), items in self.by_population(found, lambda i: i[1]).items()
        ]

    def log_se(self, rows):
        return _log_se(rows)

    def totals(self):
        ops = [op for _, op in self.all_ops]
        return {
            "runs": len(self.runs),
            "repeats": len(self.runs) - len({tuple(map(repr, run.history)) for run in self.runs}),
            "ops": len(ops),
            **{t: sum(op["type"] == t for op in ops) for t in ("ok", "fail", "info")},
            "refused": sum(op["refused"] for op in ops),
            "length_ns": sum(run.end for run in self.runs),
            "faults": len(self._all_faults()),
            "elections": sum(len(run.elections) for run in self.runs),
        }


def _log_se(rows):
    """The standard error of the log of (a/n)/(b/m), by the covariance of the totals of runs."""
    count = len(rows)
    totals = [sum(row[i] for row in rows) for i in range(4)]
    means = [total / count for total in totals]
    gradient = [1 / totals[0], -1 / totals[1], -1 / totals[2], 1 / totals[3]]
    variance = 0.0
    for i, j in itertools.product(range(4), repeat=2):
        covariance = sum((row[i] - means[i]) * (row[j] - means[j]) for row in rows) / (count - 1)
        variance += gradient[i] * gradient[j] * covariance * count
    return math.sqrt(max(0.0, variance))
