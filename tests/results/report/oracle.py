"""An oracle that computes every number of a report independently, from `History` objects.

The oracle does not use `results`. Where the report sweeps over events, the oracle loops over
everything; where the report uses buckets, windows and SQL, it sorts lists. Rows are dictionaries
with the columns of the answers, in any order.
"""

import itertools
import math
from collections import defaultdict
from pathlib import Path

import msgspec

from harness.store import load_run
from harness.verdict.judge import checkers_of, judge
from harness.verdict.signature import rule_of, signature

READS = {"get", "list", "locate", "is-create-done", "is-alter-done", "read"}
S = 1_000_000_000
RANK = {"valid": 0, "permitted": 1, "unknown": 2, "invalid": 3}
TYPES = ("ok", "fail", "info")


class Run:
    """One run, read by `load_run` and judged again."""

    environment, target, profile = "sim", "kudu", "strict"
    population = None  # the oracle numbers populations after it has read all runs

    def __init__(self, folder: Path) -> None:
        stored = load_run(folder)
        self.key = self.run = f"{folder.parent.name}/{folder.name}"
        self.case, self.history, self.record = stored.case, stored.history, stored.record
        judgement = judge(self.history, self.case, checkers_of(self.case))
        self.results = judgement.results
        self.verdict = judgement.verdict.value
        self.end = max((op.time for op in self.history), default=0)
        self.phases = [op for op in self.history if op.process == "harness" and op.f == "phase"]
        self.faults = self._faults()
        self.ops = [self._op(pair) for pair in self.history.pairs]
        self.outages = {
            kind: outages_of([op for op in self.ops if op["kind"] == kind], self.end)
            for kind in ("mutation", "read")
        }
        self.label = self.record.label if self.record else None
        self.day, self.code = self.record.started[:10], self.record.versions.get("code")
        self.seed, self.workload = self.case.seed, self.case.workload
        self.nemeses = self.asked = "+".join(sorted(set(self.case.nemeses)))
        self.bugs = "+".join(sorted(set(self.case.bugs)))
        leaders = [op for op in self.history if op.process == "harness" and op.f == "leader"]
        self.elections = leaders[1:]

    @property
    def alike(self):
        """The properties that all runs of a population share: all but the seed and the faults."""
        return self.label or "", *self.setting

    @property
    def setting(self):
        """The population without its label."""
        bare = msgspec.structs.replace(self.case, seed=0, faults=None)
        return self.workload, self.nemeses, self.bugs, repr(bare)

    def item(self, **fields):
        """Build an item: fields of this run that an answer groups or counts."""
        return {"of": self, "run": self.key, **fields}

    def _op(self, pair):
        done = pair.completion
        kind = "info" if done is None else done.type.value
        no = kind == "fail" and isinstance(done.value, dict) and "result" in done.value
        f, value = pair.invoke.f, pair.invoke.value
        only_reads = f == "txn" and {mop[0] for mop in value} == {"r"}
        error = None if done is None else done.error
        return self.item(
            f="txn r" if only_reads else f,
            kind="read" if f in READS or only_reads else "mutation",
            start=pair.invoke.time,
            end=self.end if done is None else done.time,
            line=None if done is None else done.index,
            type=kind,
            answered=kind == "ok" or no,
            refused=no,
            error_code=None if error is None else error.partition(":")[0].strip()[:80],
            node=(done and done.node) or "",
            latency=None if done is None else done.time - pair.invoke.time,
            active=self.active(pair.invoke.time),
            phase=self.phase(pair.invoke.time),
        )

    def _faults(self):
        found = []
        nemesis_ops = [op for op in self.history if op.process == "nemesis"]
        for at, op in enumerate(nemesis_ops):
            if op.value["action"] != "inject":
                continue
            fault, targets = op.value["fault"], op.value["targets"]
            heals = [
                later
                for later in (nemesis_ops[at + 1 :] if targets else [])
                if (later.value["action"], later.value["fault"]) == ("heal", fault)
            ]
            heal = heals[0] if heals else None
            found.append(
                self.item(
                    nemesis=op.f,
                    fault=fault,
                    start=op.time,
                    end=op.time if not targets else heal.time if heal else self.end,
                    hit=bool(targets),
                    heal=heal,
                    bite=heal.value["bite"]["count"] if heal else None,
                )
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

    def down(self, kind, start, end):
        """Return how long `kind` of operation was unavailable between `start` and `end`."""
        return sum(max(0, min(b, end) - max(a, start)) for a, b, _ in self.outages[kind])

    def split(self, nemesis):
        """Split the chaos phase at every begin and end of faults: (start, end, active)."""
        begin, end = self.chaos()
        own = [f for f in self.faults if f["nemesis"] == nemesis]
        cuts = {begin, end, *(t for f in own for t in (f["start"], f["end"]) if begin < t < end)}
        return [
            (a, b, any(f["start"] <= a < f["end"] for f in own))
            for a, b in itertools.pairwise(sorted(cuts))
        ]

    def struck_by(self):
        """Return the nemeses that the case or the history names, except "none"."""
        return sorted({*self.case.nemeses, *(f["nemesis"] for f in self.faults)} - {"none"})


def outages_of(ops, run_end):
    answers = sorted({op["end"] for op in ops if op["answered"] and op["line"] is not None})
    found = []
    for a, b in itertools.pairwise([0, *answers, run_end]):
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


def middle(value):
    """Return the middle of a latency's bucket. Buckets keep 5 bits after the leading one."""
    value = max(0, value)
    if value < 32:
        return value
    width = 2 ** (len(bin(value)) - 2 - 6)
    return value // width * width + width // 2


def rank(values, permille):
    """Return the value at the nearest rank."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(permille * len(ordered) / 1000)) - 1]


def middle_rank(values, permille):
    """Return the middle of the bucket at the nearest rank; `None` for no values."""
    return middle(rank(values, permille)) if values else None


def quantiles(ops):
    values = [middle(op["latency"]) for op in ops]
    names = {"p50_ns": 500, "p95_ns": 950, "p99_ns": 990, "p999_ns": 999, "max_ns": 1000}
    return {"ok": len(values), **{name: rank(values, q) for name, q in names.items()}}


def wilson(hits, n):
    """Return the two roots of the score equation (p - x)^2 = z^2 x (1 - x) / n."""
    if not n:
        return {"low": 0.0, "high": 1.0}
    z2 = 1.959963984540054**2
    a, b, c = 1 + z2 / n, -2 * hits / n - z2 / n, (hits / n) ** 2
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return {"low": (-b - root) / (2 * a), "high": (-b + root) / (2 * a)}


def arrangements(first, second):
    """Return the exact p-value of a rank test: the share of splits with such an extreme U.

    U counts the pairs that the first group wins, and half of the ties.
    """
    both = [*first, *second]

    def wins(chosen):
        rest = [both[at] for at in range(len(both)) if at not in chosen]
        return sum((both[i] > y) + (both[i] == y) / 2 for i in chosen for y in rest)

    mean = len(first) * len(second) / 2
    far = abs(wins(range(len(first))) - mean)
    every = list(itertools.combinations(range(len(both)), len(first)))
    return sum(abs(wins(chosen) - mean) >= far - 1e-9 for chosen in every) / len(every)


def field(item, name):
    """Return a field of a run, of an item, or of the item's run."""
    if isinstance(item, Run):
        return getattr(item, name)
    return item[name] if name in item else getattr(item["of"], name)


def answer(items, *names, of):
    """Group items by the fields `names`; return a row per group, with columns by `of`."""
    cells = defaultdict(list)
    for item in items:
        cells[tuple(field(item, name) for name in names)].append(item)
    return [dict(zip(names, cell, strict=True)) | of(own) for cell, own in cells.items()]


def tally(items, name, values):
    """Count the items with each value."""
    return {value: sum(field(item, name) == value for item in items) for value in values}


def verdicts_of(runs):
    return {"runs": len(runs), **tally(runs, "verdict", RANK)}


def total(items, name):
    return sum(field(item, name) for item in items)


def runs_in(items):
    return len({item["run"] for item in items})


class Oracle:
    """Answers about a store; `AtScale` adds the others."""

    def __init__(self, store: Path) -> None:
        folders = sorted(path.parent for path in store.glob("*/*/case.json"))
        self.store = store
        self.runs = [Run(folder) for folder in folders if not folder.is_symlink()]
        self.all_ops = [op for run in self.runs for op in run.ops]
        self.all_faults = [fault for run in self.runs for fault in run.faults]
        self.results = [
            run.item(checker=result.checker, verdict=result.verdict.value)
            for run in self.runs
            for result in run.results
        ]
        self.bugged = [run.item(bug=bug) for run in self.runs for bug in sorted({*run.case.bugs})]
        kinds = sorted({run.alike for run in self.runs})
        assert len({kind[:4] for kind in kinds}) == len(kinds), (
            "with equal names, the order of populations depends on hashes"
        )
        for run in self.runs:
            run.population = kinds.index(run.alike) + 1

    # --- verdicts ----------------------------------------------------------------------------

    def populations(self):
        def of(runs):
            ops = [op for run in runs for op in run.ops]
            return {
                **verdicts_of(runs),
                "ops": len(ops),
                "info": sum(op["type"] == "info" for op in ops),
                "unanswered": sum(op["type"] == "fail" and not op["refused"] for op in ops),
                "length_ns": total(runs, "end"),
                "first_started": min(run.record.started for run in runs),
            }

        same = ("label", "workload", "asked", "bugs", "environment", "target", "profile")
        return answer(self.runs, "population", *same, of=of)

    def checkers(self):
        def of(found):
            return {"results": len(found), **tally(found, "verdict", RANK), "crashed": 0}

        return answer(self.results, "population", "checker", of=of)

    def judged(self):
        """Return the judgements that the page shows."""

        def of(runs):
            counts = {name: len(field(runs[0], name)) for name in ("ops", "faults", "elections")}
            return {**counts, "length_ns": runs[0].end}

        return answer(self.runs, "run", "verdict", "seed", of=of)

    def failing_runs(self):
        names = ("run", "population", "verdict", "target", "environment", "nemeses", "bugs")
        rows = []
        for run in self.runs:
            if run.verdict == "valid":
                continue
            bad = [r for r in run.results if r.verdict.value != "valid"]
            # the result with the worst verdict; on a tie, the first in order
            first = min(bad, key=lambda r: -RANK[r.verdict.value])
            rows.append(
                {
                    **{name: field(run, name) for name in (*names, "seed", "day", "code")},
                    "recorded": run.record.verdict.value,
                    "checker": first.checker,
                    "rule": rule_of(first),
                    "signature": signature(first, run.history),
                    "reason": first.reason,
                }
            )
        return rows

    def changed_verdicts(self):
        return []

    def permitted(self):
        return []

    def detection_rates(self):
        def of(items):
            runs = sorted((item["of"] for item in items), key=lambda run: (run.seed, run.key))
            hits = [at for at, run in enumerate(runs) if run.verdict == "invalid"]
            until = runs[: hits[0] + 1] if hits else []
            return {
                "runs": len(runs),
                "detected": len(hits),
                "unknown": sum(run.verdict == "unknown" for run in runs),
                "rate": len(hits) / len(runs),
                **wilson(len(hits), len(runs)),
                "length_ns": total(runs, "end"),
                "runs_to_first": len(until) or None,
                "ns_to_first": total(until, "end") if hits else None,
                "first_run": until[-1].key if hits else None,
            }

        return answer(self.bugged, "bug", "population", of=of)

    def detection_by_nemesis(self):
        def of(items):
            found = [item for item in items if item["of"].verdict == "invalid"]
            return {"runs": len(items), "detected": len(found)}

        return answer(self.bugged, "bug", "population", "nemeses", of=of)

    def detection_by_checker(self):
        found = [
            {**item, "checker": result.checker}
            for item in self.bugged
            for result in item["of"].results
            if result.verdict.value == "invalid"
        ]
        return answer(found, "bug", "population", "checker", of=lambda own: {"detected": len(own)})

    def clean_rates(self):
        def of(runs):
            bad, unknown = tally(runs, "verdict", ["invalid", "unknown"]).values()
            known = len(runs) - unknown
            return {
                "runs": len(runs),
                "invalid": bad,
                "unknown": unknown,
                "rate": bad / known if known else None,
                **wilson(bad, known),
                "below": None if bad else 1 - 0.05 ** (1 / known) if known else 1.0,
                "length_ns": total(runs, "end"),
            }

        return answer([run for run in self.runs if not run.bugs], "population", of=of)

    # --- operations --------------------------------------------------------------------------

    def op_counts(self):
        def of(ops):
            counts = {"ops": len(ops), "refused": total(ops, "refused")}
            return {**counts, **tally(ops, "type", TYPES)}

        return answer(self.all_ops, "population", "f", of=of)

    def errors(self):
        bad = [op for op in self.all_ops if op["error_code"] is not None]
        names = ("population", "f", "type", "error_code", "answered")
        return answer(bad, *names, of=lambda ops: {"n": len(ops), "runs": runs_in(ops)})

    def _latency(self, *names):
        done = [op for op in self.all_ops if op["type"] == "ok"]
        return answer(done, "population", *names, "f", of=quantiles)

    def latency_by_f(self):
        return self._latency()

    def latency_by_active(self):
        return self._latency("active")

    def latency_by_phase(self):
        return self._latency("phase")

    def latency_by_node(self):
        return self._latency("node")

    def latency_by_run(self):
        return self._latency("run")

    def info_losses(self):
        lost = [
            {**op, "nemesis": nemesis}
            for op in self.all_ops
            if op["type"] == "info"
            for nemesis in (op["active"] or "none").split("+")
        ]
        of = lambda own: {"n": len(own), "runs": runs_in(own)}  # noqa: E731
        return answer(lost, "population", "nemesis", "f", of=of)

    # --- faults ------------------------------------------------------------------------------

    def uplift_counts(self):
        """Map (population, nemesis, outcome) to rows of hits and trials with and without it."""
        found = defaultdict(list)
        for run in self.runs:
            begin, end = run.chaos()
            chaos = [op for op in run.ops if begin <= op["start"] < end]
            for nemesis in run.struck_by():

                def count(outcome, chosen, bad, nemesis=nemesis, run=run):
                    row = [0, 0, 0, 0]
                    for op in chosen:
                        at = 0 if nemesis in op["active"].split("+") else 2
                        row[at] += bad(op)
                        row[at + 1] += 1
                    found[run.population, nemesis, outcome].append(tuple(row))

                count("unanswered", chaos, lambda op: op["type"] == "fail" and not op["answered"])
                count("info", chaos, lambda op: op["type"] == "info")
                for f in sorted({op["f"] for op in chaos}):
                    own = [op for op in chaos if op["f"] == f]
                    count(f"{f} fails or is lost", own, lambda op: not op["answered"])
                for kind in ("mutation", "read"):
                    row = [0, 0, 0, 0]
                    for a, b, active in run.split(nemesis):
                        row[0 if active else 2] += run.down(kind, a, b)
                        row[1 if active else 3] += b - a
                    found[run.population, nemesis, f"{kind}s down"].append(tuple(row))
        return found

    def uplift_ratios(self):
        names = ("population", "nemesis", "outcome")
        return [
            dict(zip(names, key, strict=True))
            | ratio_of([row for row in every if row[1] or row[3]])
            for key, every in self.uplift_counts().items()
        ]

    def availability(self):
        parts = []
        for run in self.runs:
            for nemesis, active in itertools.product(run.struck_by(), (True, False)):
                own = [(a, b) for a, b, now in run.split(nemesis) if now == active]
                down = {
                    f"{kind}_down_ns": sum(run.down(kind, a, b) for a, b in own)
                    for kind in ("mutation", "read")
                }
                ns = sum(b - a for a, b in own)
                parts.append(run.item(nemesis=nemesis, active=active, ns=ns, **down))
        sums = ("ns", "mutation_down_ns", "read_down_ns")
        of = lambda own: {"runs": len(own), **{name: total(own, name) for name in sums}}  # noqa: E731
        return answer(parts, "population", "nemesis", "active", of=of)

    def faults(self):
        def of(items):
            row = {
                "runs": runs_in(items),
                "faults": len(items),
                "hit": total(items, "hit"),
                "healed": sum(f["heal"] is not None for f in items),
                "bit": sum((f["bite"] or 0) > 0 for f in items),
                "active_ns": sum(f["end"] - f["start"] for f in items),
            }
            for kind in ("mutation", "read"):
                down = [f["of"].down(kind, f["start"], f["end"]) for f in items]
                row |= {f"{kind}_down_ns": sum(down), f"{kind}_down_max_ns": max(down)}
            return row

        return answer(self.all_faults, "population", "nemesis", of=of)

    def outages(self):
        found = [
            run.item(active=run.active(start), kind=kind, ns=end - start, how=how)
            for run in self.runs
            for kind, outages in run.outages.items()
            for start, end, how in outages
        ]

        def of(items):
            return {
                "outages": len(items),
                "runs": runs_in(items),
                "total_ns": total(items, "ns"),
                "longest_ns": max(item["ns"] for item in items),
                "unended": sum(item["how"] != "answered" for item in items),
            }

        return answer(found, "population", "active", "kind", of=of)

    def outage_after_heal(self):
        heals = [
            {**fault, "kind": kind}
            for fault in self.all_faults
            if fault["heal"] is not None
            for kind in ("mutation", "read")
        ]

        def of(items):
            fell = [
                (outage_end - item["end"], how)
                for item in items
                for start, outage_end, how in item["of"].outages[item["kind"]]
                if start <= item["end"] < outage_end
            ]
            left = [ns for ns, how in fell if how == "answered"]
            return {
                "heals": len(items),
                "in_outage": len(left),
                "never": len(fell) - len(left),
                "p50_ns": middle_rank(left, 500),
                "max_ns": max(left, default=None),
            }

        return answer(heals, "population", "nemesis", "kind", of=of)

    def recovery(self):
        found = []
        for fault in self.all_faults:
            if fault["heal"] is None:
                continue
            run, line, time = fault["of"], fault["heal"].index, fault["heal"].time
            for f in {op["f"] for op in run.ops}:
                later = [
                    op
                    for op in run.ops
                    if op["f"] == f and (op["line"] is None or op["line"] > line)
                ]
                tried = min((max(0, op["start"] - time) for op in later), default=None)
                ok = min((op["end"] - time for op in later if op["type"] == "ok"), default=None)
                found.append({**fault, "f": f, "tried": tried, "ok": ok})

        def of(items):
            done = [item for item in items if item["ok"] is not None]
            oks, waits = [i["ok"] for i in done], [i["ok"] - i["tried"] for i in done]
            untried = sum(item["tried"] is None for item in items)
            return {
                "heals": len(items),
                "untried": untried,
                "never": len(items) - len(done) - untried,
                "waited_p50_ns": middle_rank(waits, 500),
                "waited_p95_ns": middle_rank(waits, 950),
                "waited_max_ns": max(waits, default=None),
                "ok_p50_ns": middle_rank(oks, 500),
                "ok_max_ns": max(oks, default=None),
            }

        return answer(found, "population", "nemesis", "f", of=of)

    def elections(self):
        def of(runs):
            counts = [len(run.elections) for run in runs]
            row = {"runs": len(runs), "elections": sum(counts), "runs_without": counts.count(0)}
            return {**row, "least": min(counts), "most": max(counts)}

        return answer(self.runs, "population", of=of)

    def election_causes(self):
        found = [
            run.item(active=run.active(op.time), term=op.value["term"])
            for run in self.runs
            for op in run.elections
        ]

        def of(items):
            highest = max(item["term"] for item in items)
            return {"elections": len(items), "runs": runs_in(items), "highest_term": highest}

        return answer(found, "population", "active", of=of)

    def totals(self):
        return {
            "runs": len(self.runs),
            "repeats": len(self.runs) - len({tuple(map(repr, run.history)) for run in self.runs}),
            "ops": len(self.all_ops),
            **tally(self.all_ops, "type", TYPES),
            "refused": total(self.all_ops, "refused"),
            "length_ns": total(self.runs, "end"),
            "faults": len(self.all_faults),
            "elections": sum(len(run.elections) for run in self.runs),
        }


def totals_of(rows):
    return [sum(row[i] for row in rows) for i in range(4)]


def ratio_of(rows):
    """Return the ratio of a/n to b/m over all rows, one per run."""
    a, n, b, m = totals_of(rows)
    return {
        "with_rate": a / n if n else None,
        "without_rate": b / m if m else None,
        "runs": len(rows),
        "ratio": (a / n) / (b / m) if n and b else None,
        "log_se": log_se(rows) if a and b and len(rows) > 1 else None,
    }


def log_se(rows):
    """Return the standard error of log((a/n)/(b/m)), by the covariance of run totals."""
    count = len(rows)
    totals = totals_of(rows)
    means = [total / count for total in totals]
    gradient = [1 / totals[0], -1 / totals[1], -1 / totals[2], 1 / totals[3]]
    variance = 0.0
    for i, j in itertools.product(range(4), repeat=2):
        covariance = sum((row[i] - means[i]) * (row[j] - means[j]) for row in rows) / (count - 1)
        variance += gradient[i] * gradient[j] * covariance * count
    return math.sqrt(max(0.0, variance))
