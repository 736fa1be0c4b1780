"""The oracle's answers about many runs, days, codes and settings; see `oracle`."""

import math
from collections import defaultdict
from datetime import date

import pyarrow.parquet as pq

from tests.results.report.oracle import (
    Oracle,
    answer,
    field,
    log_se,
    middle,
    quantiles,
    rank,
    ratio_of,
    total,
    totals_of,
    verdicts_of,
    wilson,
)

SEEDS = (
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
    *(1_000, 2_000, 5_000, 10_000),
)


def named(history, result):
    """Return the invocations of the first two client operations that a result names."""
    found = []
    for index in result.operations:
        for pair in history.pairs:
            if index in {pair.invoke.index, pair.completion.index if pair.completion else None}:
                found += [pair.invoke.index] if pair.invoke.index not in found else []
    return found[:2]


def seeds_until(p, sure):
    """Return how many seeds find a failure of rate `p` with probability `sure`."""
    n, missed = 0, 1.0
    while missed > 1 - sure + 1e-12:
        n, missed = n + 1, missed * (1 - p)
    return n


def down_in(runs):
    """Return the unavailable time of runs, by kind."""
    kinds = ("mutation", "read")
    return {kind: [run.down(kind, 0, run.end) for run in runs] for kind in kinds}


class AtScale(Oracle):
    """Answers about many runs; with those of `Oracle`, these are all answers about a store."""

    # --- failures ----------------------------------------------------------------------------

    def signatures(self):
        def of(items):
            first = min(items, key=lambda item: (item["seed"], item["run"]))
            return {
                "runs": len(items),
                "populations": "+".join(map(str, sorted({i["population"] for i in items}))),
                "first_run": first["run"],
                "first_seed": first["seed"],
                **{name: first[name] for name in ("checker", "rule", "reason")},
                **self.seen(items),
            }

        return answer(self.by_signature(), "verdict", "bugs", "signature", "target", of=of)

    def by_signature(self):
        """Return the failing runs, with the first three parts of their signatures."""
        return [
            {**row, "signature": " · ".join(row["signature"].split(" · ")[:3])}
            for row in self.failing_runs()
        ]

    def seen(self, failing):
        """Return when failing runs were seen, and how many later runs had their settings."""
        own = [run for run in self.runs if run.key in {row["run"] for row in failing}]
        order = lambda run: (run.record.started, run.key)  # noqa: E731
        first, last = min(own, key=order), max(own, key=order)
        since = 0
        for kind in {run.setting for run in own}:
            latest = max((run for run in own if run.setting == kind), key=order)
            since += sum(run.setting == kind and order(run) > order(latest) for run in self.runs)
        newest = max(run.day for run in self.runs)
        return {
            "first_day": first.day,
            "first_code": first.code,
            "last_day": last.day,
            "last_code": last.code,
            "last_run": last.key,
            "days_since": (date.fromisoformat(newest) - date.fromisoformat(last.day)).days,
            "runs_since": since,
            "below_since": 1 - 0.05 ** (1 / since) if since else 1.0,
        }

    def _found(self):
        """Yield the hits of each signature with intervals, and of all signatures together."""
        hits = defaultdict(int)
        for row in self.by_signature():
            if row["verdict"] == "invalid":
                hits[row["population"], row["signature"]] += 1
        for population in {population for population, _ in hits}:
            own = [n for (p, _), n in list(hits.items()) if p == population]
            if len(own) > 1:
                hits[population, "any failure"] = sum(own)
        for (population, text), n in hits.items():
            runs = sum(run.population == population for run in self.runs)
            row = {"population": population, "signature": text, "runs": runs, "hits": n}
            yield {**row, "rate": n / runs, **wilson(n, runs)}

    def detectability(self):
        return [
            {
                **row,
                "seeds_half": seeds_until(row["rate"], 0.5),
                "seeds_sure": seeds_until(row["rate"], 0.95),
                "seeds_sure_low": seeds_until(row["high"], 0.95),
                "seeds_sure_high": seeds_until(row["low"], 0.95),
            }
            for row in self._found()
        ]

    def detection_curves(self):
        names = {"probability": "rate", "low": "low", "high": "high"}
        return [
            {
                **{name: row[name] for name in ("population", "signature", "runs", "hits")},
                "seeds": n,
                **{name: 1 - (1 - row[of]) ** n for name, of in names.items()},
            }
            for row in self._found()
            for n in SEEDS
        ]

    # --- survival ----------------------------------------------------------------------------

    def _lives(self):
        """Map each population to its runs' lives.

        A life is the number of operations that a run lasted, and whether the run then failed or
        ended.
        """
        lives = defaultdict(list)
        for run in self.runs:
            if run.verdict == "invalid":
                begun = [
                    sum(pair.invoke.index <= max(lines) for pair in run.history.pairs)
                    for result in run.results
                    if result.verdict.value == "invalid"
                    for lines in [named(run.history, result)]
                    if lines
                ]
                lives[run.population].append((min(begun, default=len(run.ops)), True))
            elif run.verdict != "unknown":
                lives[run.population].append((len(run.ops), False))
        return lives

    def survival(self):
        rows = []
        for population, lives in self._lives().items():
            left, spread = 1.0, 0.0
            for at in sorted({at for at, failed in lives if failed}):
                failed = sum(when == at and bad for when, bad in lives)
                at_risk = sum(when >= at for when, _ in lives)
                left *= 1 - failed / at_risk
                row = {"population": population, "ops": at, "at_risk": at_risk, "failed": failed}
                row |= {"survival": left, "low": None, "high": None}
                row["until"] = max(when for when, _ in lives)
                if left > 0:
                    spread += failed / (at_risk * (at_risk - failed))
                    half = 1.959963984540054 * math.sqrt(spread) / abs(math.log(left))
                    middle = math.log(-math.log(left))
                    row["low"] = math.exp(-math.exp(middle + half))
                    row["high"] = math.exp(-math.exp(middle - half))
                rows.append(row)
        return rows

    # --- trends ------------------------------------------------------------------------------

    def _trends(self, name):
        def of(runs):
            known = [run for run in runs if run.verdict != "unknown"]
            ops = [op for run in runs for op in run.ops]
            took = [middle(op["latency"]) for op in ops if op["type"] == "ok"]
            bad = sum(run.verdict == "invalid" for run in runs)
            length = total(runs, "end")
            down = {kind: sum(own) for kind, own in down_in(runs).items()}
            return {
                **verdicts_of(runs),
                "ops": len(ops),
                "ok": len(took),
                "length_ns": length,
                "rate": bad / len(known) if known else None,
                **wilson(bad, len(known)),
                "ok_per_s": len(took) / (length / 1e9),
                **{f"{kind}_down_ns": ns for kind, ns in down.items()},
                **{f"{kind}_down": ns / length for kind, ns in down.items()},
                "p50_ns": rank(took, 500),
                "p99_ns": rank(took, 990),
                "first_started": min(run.record.started for run in runs),
            }

        own = [run for run in self.runs if field(run, name) is not None]
        return answer(own, "population", name, of=of)

    def trend_by_day(self):
        return self._trends("day")

    def trend_by_code(self):
        return self._trends("code")

    def latency_trends(self):
        done = [
            {**op, "dimension": name, "value": field(op, name), "f": f}
            for op in self.all_ops
            if op["type"] == "ok"
            for name in ("day", "code")
            if field(op, name) is not None
            for f in (op["f"], "")
        ]
        return answer(done, "population", "dimension", "value", "f", of=quantiles)

    def availability_quantiles(self):
        def of(items):
            down = [middle(item["ns"]) for item in items]
            ranks = {f"p{q // 10}_ns": rank(down, q) for q in (500, 950, 990)}
            counts = {"runs": len(down), "runs_without": down.count(0)}
            return {**counts, **ranks, "max_ns": max(down)}

        found = [
            run.item(kind=kind, ns=ns)
            for run in self.runs
            for kind, (ns,) in down_in([run]).items()
        ]
        return answer(found, "population", "kind", of=of)

    # --- repeated cases ----------------------------------------------------------------------

    def repeated_cases(self):
        def of(runs):
            return {
                "runs": len(runs),
                "other_verdict": len({run.verdict for run in runs}) > 1,
                "other_history": len({tuple(map(repr, run.history)) for run in runs}) > 1,
            }

        def counted(cases):
            return {
                "environment": "sim",
                "cases": len(cases),
                "runs": total(cases, "runs"),
                "other_verdicts": total(cases, "other_verdict"),
                "other_histories": total(cases, "other_history"),
            }

        own = [run for run in self.runs if run.code is not None]
        cases = answer(own, "setting", "code", "seed", of=of)
        rows = answer([c for c in cases if c["runs"] > 1], "setting", "code", of=counted)
        return [{name: row[name] for name in row.keys() - {"setting"}} for row in rows]

    def flakes(self):
        assert not any(
            row["other_verdicts"] or row["other_histories"] for row in self.repeated_cases()
        )
        return []

    # --- costs -------------------------------------------------------------------------------

    def costs(self):
        spent = defaultdict(int)
        for row in pq.read_table(self.store / ".report/tables/verdicts.parquet").to_pylist():
            spent[row["run"]] += row["cpu_ns"]
        whole = sum(run.record.wall_s for run in self.runs)
        size = self._sizes()

        def of(items):
            runs = [item["of"] for item in items]
            wall_s = sum(run.record.wall_s for run in runs)
            cpu_ns, stored = (sum(of[run.key] for run in runs) for of in (spent, size))
            return {
                "runs": len(runs),
                "timed": len(runs),
                "wall_ns": int(wall_s * 1e9),
                "cpu_ns": cpu_ns,
                "run_cpu_ns": cpu_ns // len(runs),
                "length_ns": total(runs, "end"),
                "ops": sum(len(run.ops) for run in runs),
                "lines": sum(len(run.history) for run in runs),
                "bytes": round(stored),
                "run_bytes": round(stored / len(runs)),
                "run_wall_ns": int(wall_s * 1e9 / len(runs)),
                "share": wall_s / whole,
            }

        groups = [
            run.item(by=by, value=value)
            for run in self.runs
            for by, value in (
                ("all", "all runs"),
                ("label", run.label or "no label"),
                ("profile", "strict"),
                *(("nemesis", nemesis) for nemesis in {*run.case.nemeses}),
            )
        ]
        return answer(groups, "by", "value", of=of)

    def _sizes(self):
        """Return each run's share of its partition's bytes, in proportion to its lines."""
        stored, lines = defaultdict(int), defaultdict(int)
        for path in (self.store / ".lake").glob("*/*.parquet"):
            (row,) = pq.read_table(path, columns=["label", "day"]).slice(0, 1).to_pylist()
            stored[row["label"], str(row["day"])] += path.stat().st_size
        partitions = {run.key: (run.label, run.record.started[:10]) for run in self.runs}
        for run in self.runs:
            lines[partitions[run.key]] += len(run.history)
        return {
            run.key: stored[partitions[run.key]] * len(run.history) / lines[partitions[run.key]]
            for run in self.runs
        }

    # --- faults ------------------------------------------------------------------------------

    def _role(self, run, fault):
        """Return the role of a fault's target, by the lines before its injection."""
        leader = None
        for op in run.history:
            if op.process == "harness" and op.f == "leader":
                leader = op.value["node"]
            if op.process == "nemesis" and (op.value["action"], op.value["fault"]) == (
                "inject",
                fault["fault"],
            ):
                return "leader" if leader in op.value["targets"] else "other"
        raise AssertionError(fault)

    def _role_counts(self):
        """Map (population, nemesis, phase, role) to run -> [bad, operations].

        The role is `None` for operations outside the nemesis's faults.
        """
        cells = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for run in self.runs:
            hits = [(f, self._role(run, f)) for f in run.faults if f["hit"]]
            for op in run.ops:
                phase = op["phase"]
                if phase not in {"chaos", "heal-core"}:
                    continue
                for nemesis in {f["nemesis"] for f, _ in hits}:
                    roles = {
                        role
                        for f, role in hits
                        if f["nemesis"] == nemesis and f["start"] <= op["start"] < f["end"]
                    }
                    for role in roles or {None}:
                        cell = cells[run.population, nemesis, phase, role][run.key]
                        cell[0] += not op["answered"]
                        cell[1] += 1
        return cells

    def uplift_by_role(self):
        cells, pairs = self._role_counts(), {}

        def paired(key, other, runs=None):
            """Pair the two counts of each run in `runs` (default: each run that has a count)."""
            first, second = cells.get(key, {}), cells.get(other, {})
            every = {*first, *second} if runs is None else runs
            return [(*first.get(run, (0, 0)), *second.get(run, (0, 0))) for run in every]

        for population, nemesis, phase, role in list(cells):
            if role is not None:
                of = (population, nemesis)
                own = (*of, phase, role)
                pairs[(*own, "without")] = paired(own, (*of, phase, None), {*cells[own]})
                roles = ((*of, phase, "leader"), (*of, phase, "other"))
                pairs[(*roles[0], "other")] = paired(*roles)
                phases = ((*of, "heal-core", role), (*of, "chaos", role))
                pairs[(*phases[0], "chaos")] = paired(*phases)
        names = ("population", "nemesis", "phase", "role", "against")
        rows = []
        for key, counts in pairs.items():
            _, n, _, m = totals_of(counts)
            if n and m:
                row = {**dict(zip(names, key, strict=True)), "n": n, "m": m}
                rows.append(row | ratio_of(counts))
        return rows

    def uplift_stratified(self):
        """Return pooled ratios, with the standard errors of their logarithms."""
        groups = defaultdict(list)
        for (population, nemesis, outcome), counts in self.uplift_counts().items():
            run = next(run for run in self.runs if run.population == population)
            key = ("kudu", "sim", run.case.workload, run.bugs, nemesis, outcome)
            groups[key].append((population, [row for row in counts if row[1] or row[3]]))
        rows = []
        names = ("target", "environment", "workload", "bugs", "nemesis", "outcome")
        for key, every in groups.items():
            strata = [
                rows
                for _, rows in every
                if len(rows) > 1 and sum(r[1] for r in rows) and sum(r[3] for r in rows)
            ]
            if len(strata) < 2:
                continue
            above, below = mantel_haenszel(strata)
            rows.append(
                {
                    **dict(zip(names, key, strict=True)),
                    "populations": "+".join(str(p) for p, _ in sorted(every)),
                    "ratio": above / below if below else None,
                    "strata": len(strata),
                    "runs": sum(map(len, strata)),
                    "log_se": pooled_log_se(strata) if above and below else None,
                    "agree_p": self.agreement(strata) if above and below else None,
                }
            )
        return rows

    def agreement(self, strata):
        """Return the p-value of Cochran's Q for the ratios of these strata."""
        found = []
        for rows in strata:
            a, n, b, m = totals_of(rows)
            if a and b and log_se(rows) > 0:
                found.append((math.log(a * m / (n * b)), log_se(rows) ** -2))
        if len(found) < 2:
            return None
        centre = sum(x * w for x, w in found) / sum(w for _, w in found)
        return tail(sum(w * (x - centre) ** 2 for x, w in found), len(found) - 1)


def tail(x, df):
    """Return P(X > x) of chi-square, by recursion over the degrees of freedom."""
    first = math.erfc(math.sqrt(x / 2)) if df % 2 else math.exp(-x / 2)
    for k in range(1 + (df + 1) % 2, df, 2):
        first += (x / 2) ** (k / 2) * math.exp(-x / 2) / math.gamma(k / 2 + 1)
    return first


def mantel_haenszel(strata):
    """Return both sums of the pooled ratio; a stratum has runs as (a, n, b, m)."""
    above = below = 0.0
    for rows in strata:
        a, n, b, m = totals_of(rows)
        above += a * m / (n + m)
        below += b * n / (n + m)
    return above, below


def pooled_log_se(strata):
    """Return the standard error of the pooled ratio's logarithm, by numeric derivatives."""

    def log_ratio(totals):
        above = sum(a * m / (n + m) for a, n, b, m in totals)
        below = sum(b * n / (n + m) for a, n, b, m in totals)
        return math.log(above / below)

    totals = [[float(sum(row[i] for row in rows)) for i in range(4)] for rows in strata]
    variance = 0.0
    for at, rows in enumerate(strata):
        slopes = []
        for i in range(4):
            step = max(1.0, totals[at][i]) * 1e-4
            moved = []
            for way in (-step, step):
                others = [list(row) for row in totals]
                others[at][i] += way
                moved.append(log_ratio(others))
            slopes.append((moved[1] - moved[0]) / (2 * step))
        scores = [sum(s * x for s, x in zip(slopes, row, strict=True)) for row in rows]
        mean = sum(scores) / len(scores)
        spread = sum((score - mean) ** 2 for score in scores)
        variance += len(rows) / (len(rows) - 1) * spread
    return math.sqrt(variance)
