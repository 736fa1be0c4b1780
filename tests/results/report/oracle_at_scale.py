"""What a report says over many runs, days, codes and settings, by other means: see `oracle`."""

import math
from collections import defaultdict
from datetime import date

import pyarrow.parquet as pq

SEEDS = (
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
    *(1_000, 2_000, 5_000, 10_000),
)


def named(history, result):
    """Invocations of the first two client operations that a result names, by either end."""
    found = []
    for index in result.operations:
        for pair in history.pairs:
            if index in {pair.invoke.index, pair.completion.index if pair.completion else None}:
                found += [pair.invoke.index] if pair.invoke.index not in found else []
    return found[:2]


def seeds_until(p, sure):
    """By trying one number after another."""
    n, missed = 0, 1.0
    while missed > 1 - sure + 1e-12:
        n, missed = n + 1, missed * (1 - p)
    return n


class AtScale:
    """Part of `Oracle`, which has `runs` and the other answers."""

    def day(self, run):
        return run.record.started[:10]

    def code(self, run):
        return run.record.versions.get("code")

    # --- failures ----------------------------------------------------------------------------

    def seen(self, failing):
        """When some failing runs were seen, and how many runs of their settings came later."""
        own = [run for run in self.runs if run.key in {row["run"] for row in failing}]
        order = lambda run: (run.record.started, run.key)  # noqa: E731
        first, last = min(own, key=order), max(own, key=order)
        since = 0
        for kind in {run.alike[1:] for run in own}:
            latest = max((run for run in own if run.alike[1:] == kind), key=order)
            since += sum(run.alike[1:] == kind and order(run) > order(latest) for run in self.runs)
        newest = max(self.day(run) for run in self.runs)
        return {
            "first_day": self.day(first),
            "first_code": self.code(first),
            "last_day": self.day(last),
            "last_code": self.code(last),
            "last_run": last.key,
            "days_since": (date.fromisoformat(newest) - date.fromisoformat(self.day(last))).days,
            "runs_since": since,
            "below_since": 1 - 0.05 ** (1 / since) if since else 1.0,
        }

    def _found(self):
        """(population, signature) -> hits, runs; with a line for all where there are several."""
        hits = defaultdict(int)
        for row in self.failing_runs():
            if row["verdict"] == "invalid":
                hits[row["population"], row["signature"]] += 1
        for population in {population for population, _ in hits}:
            own = [n for (p, _), n in list(hits.items()) if p == population]
            if len(own) > 1:
                hits[population, "any failure"] = sum(own)
        size = {p: sum(run.population == p for run in self.runs) for p, _ in hits}
        return {key: (n, size[key[0]]) for key, n in hits.items()}

    def detectability(self):
        rows = []
        for (population, text), (hits, runs) in self._found().items():
            low, high = self.wilson(hits, runs)
            rows.append(
                {
                    "population": population,
                    "signature": text,
                    "runs": runs,
                    "hits": hits,
                    "rate": hits / runs,
                    "low": low,
                    "high": high,
                    "seeds_half": seeds_until(hits / runs, 0.5),
                    "seeds_sure": seeds_until(hits / runs, 0.95),
                    "seeds_sure_low": seeds_until(high, 0.95),
                    "seeds_sure_high": seeds_until(low, 0.95),
                }
            )
        return rows

    def detection_curves(self):
        rows = []
        for (population, text), (hits, runs) in self._found().items():
            low, high = self.wilson(hits, runs)
            rows += [
                {
                    "population": population,
                    "signature": text,
                    "runs": runs,
                    "hits": hits,
                    "seeds": n,
                    "probability": 1 - (1 - hits / runs) ** n,
                    "low": 1 - (1 - low) ** n,
                    "high": 1 - (1 - high) ** n,
                }
                for n in SEEDS
            ]
        return rows

    # --- survival ----------------------------------------------------------------------------

    def _lives(self):
        """(population) -> how many operations until the failure or the end, and which it was."""
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

    def _trends(self, name, of):
        cells = defaultdict(list)
        for run in self.runs:
            if of(run) is not None:
                cells[run.population, of(run)].append(run)
        rows = []
        for (population, value), runs in cells.items():
            known = [run for run in runs if run.verdict != "unknown"]
            took = [
                self.middle(op["latency"]) for run in runs for op in run.ops if op["type"] == "ok"
            ]
            bad = sum(run.verdict == "invalid" for run in runs)
            low, high = self.wilson(bad, len(known)) if known else (0.0, 1.0)
            length = sum(run.end for run in runs)
            down = {
                kind: sum(run.down(kind, 0, run.end) for run in runs)
                for kind in ("mutation", "read")
            }
            rows.append(
                {
                    "population": population,
                    name: value,
                    "runs": len(runs),
                    **{v: sum(run.verdict == v for run in runs) for v in self.verdicts},
                    "ops": sum(len(run.ops) for run in runs),
                    "ok": sum(op["type"] == "ok" for run in runs for op in run.ops),
                    "length_ns": length,
                    "mutation_down_ns": down["mutation"],
                    "read_down_ns": down["read"],
                    "rate": bad / len(known) if known else None,
                    "low": low,
                    "high": high,
                    "ok_per_s": len(took) / (length / 1e9),
                    "mutation_down": down["mutation"] / length,
                    "read_down": down["read"] / length,
                    "p50_ns": self.rank(took, 500),
                    "p99_ns": self.rank(took, 990),
                    "first_started": min(run.record.started for run in runs),
                }
            )
        return rows

    def trend_by_day(self):
        return self._trends("day", self.day)

    def trend_by_code(self):
        return self._trends("code", self.code)

    def latency_trends(self):
        rows = []
        for name, of in (("day", self.day), ("code", self.code)):
            cells = defaultdict(list)
            for run, op in self.all_ops:
                if op["type"] == "ok" and of(run) is not None:
                    for f in (op["f"], ""):
                        cells[run.population, of(run), f].append(self.middle(op["latency"]))
            for (population, value, f), took in cells.items():
                row = {"population": population, "dimension": name, "value": value, "f": f}
                rows.append({**row, **self.quantiles(took)})
        return rows

    def availability_quantiles(self):
        cells = defaultdict(list)
        for run in self.runs:
            for kind in ("mutation", "read"):
                cells[run.population, kind].append(self.middle(run.down(kind, 0, run.end)))
        return [
            {
                "population": population,
                "kind": kind,
                "runs": len(down),
                "runs_without": down.count(0),
                "p50_ns": self.rank(down, 500),
                "p95_ns": self.rank(down, 950),
                "p99_ns": self.rank(down, 990),
                "max_ns": max(down),
            }
            for (population, kind), down in cells.items()
        ]

    # --- the same case again -----------------------------------------------------------------

    def repeated_cases(self):
        cases = defaultdict(list)
        for run in self.runs:
            if self.code(run) is not None:
                cases[run.alike[1:], self.code(run), run.case.seed].append(run)
        groups = defaultdict(list)
        for (setting, code, _), runs in cases.items():
            if len(runs) > 1:
                groups[setting, code].append(runs)
        return [
            {
                "code": code,
                "environment": "sim",
                "cases": len(again),
                "runs": sum(map(len, again)),
                "other_verdicts": sum(len({run.verdict for run in runs}) > 1 for runs in again),
                "other_histories": sum(
                    len({tuple(map(repr, run.history)) for run in runs}) > 1 for runs in again
                ),
            }
            for (_, code), again in groups.items()
        ]

    def flakes(self):
        assert not any(
            row["other_verdicts"] or row["other_histories"] for row in self.repeated_cases()
        )
        return []

    # --- costs -------------------------------------------------------------------------------

    def costs(self):
        """The CPU time of checks is as they measured it."""
        spent = defaultdict(int)
        for row in pq.read_table(self.store / ".report/tables/verdicts.parquet").to_pylist():
            spent[row["run"]] += row["cpu_ns"]
        groups = defaultdict(list)
        for run in self.runs:
            groups["all", "all runs"].append(run)
            groups["label", run.label or "no label"].append(run)
            groups["profile", "strict"].append(run)
            for nemesis in sorted(set(run.case.nemeses)):
                groups["nemesis", nemesis].append(run)
        whole = sum(run.record.wall_s for run in self.runs)
        size = self._sizes()
        return [
            {
                "by": by,
                "value": value,
                "runs": len(runs),
                "timed": len(runs),
                "wall_ns": int(sum(run.record.wall_s for run in runs) * 1e9),
                "cpu_ns": sum(spent[run.key] for run in runs),
                "run_cpu_ns": sum(spent[run.key] for run in runs) // len(runs),
                "length_ns": sum(run.end for run in runs),
                "ops": sum(len(run.ops) for run in runs),
                "lines": sum(len(run.history) for run in runs),
                "bytes": round(sum(size[run.key] for run in runs)),
                "run_bytes": round(sum(size[run.key] for run in runs) / len(runs)),
                "run_wall_ns": int(sum(run.record.wall_s for run in runs) * 1e9 / len(runs)),
                "share": sum(run.record.wall_s for run in runs) / whole,
            }
            for (by, value), runs in groups.items()
        ]

    def _sizes(self):
        """The bytes of each run: a share of its partition, by the lines of its history."""
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
        """Of what a fault hit, by the lines before its injection."""
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
        """(population, nemesis, phase, role) -> run -> [bad, operations]; without: role None."""
        cells = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for run in self.runs:
            hits = [(f, self._role(run, f)) for f in run.faults if f["hit"]]
            for op in run.ops:
                phase = run.phase(op["start"])
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
        cells = self._role_counts()
        pairs = {}
        for population, nemesis, phase, role in list(cells):
            if role is None:
                continue
            key = (population, nemesis, phase, role)
            other = cells.get((population, nemesis, phase, None), {})
            pairs[(*key, "without")] = [
                (*cell, *other.get(run, (0, 0))) for run, cell in cells[key].items()
            ]
            first = cells.get((population, nemesis, phase, "leader"), {})
            second = cells.get((population, nemesis, phase, "other"), {})
            pairs[population, nemesis, phase, "leader", "other"] = [
                (*first.get(run, (0, 0)), *second.get(run, (0, 0))) for run in {*first, *second}
            ]
            first = cells.get((population, nemesis, "heal-core", role), {})
            second = cells.get((population, nemesis, "chaos", role), {})
            pairs[population, nemesis, "heal-core", role, "chaos"] = [
                (*first.get(run, (0, 0)), *second.get(run, (0, 0))) for run in {*first, *second}
            ]
        rows = []
        for (population, nemesis, phase, role, against), counts in pairs.items():
            a, n, b, m = (sum(row[i] for row in counts) for i in range(4))
            if not n or not m:
                continue
            row = {"population": population, "nemesis": nemesis, "phase": phase, "role": role}
            row |= {"against": against, "n": n, "m": m, "runs": len(counts)}
            row |= {"with_rate": a / n, "without_rate": b / m}
            row["ratio"] = (a / n) / (b / m) if b else None
            usable = a and b and len(counts) > 1
            rows.append({**row, "log_se": self.log_se(counts) if usable else None})
        return rows

    def uplift_stratified(self):
        """Pooled ratios, and the spread of their logarithm by its slopes, measured."""
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
        """Cochran's Q against the tail of the chi-square distribution."""
        found = []
        for rows in strata:
            a, n, b, m = (sum(row[i] for row in rows) for i in range(4))
            if a and b and self.log_se(rows) > 0:
                found.append((math.log(a * m / (n * b)), self.log_se(rows) ** -2))
        if len(found) < 2:
            return None
        centre = sum(x * w for x, w in found) / sum(w for _, w in found)
        return tail(sum(w * (x - centre) ** 2 for x, w in found), len(found) - 1)


def tail(x, df):
    """P(X > x) of chi-square by its recursion over degrees of freedom."""
    first = math.erfc(math.sqrt(x / 2)) if df % 2 else math.exp(-x / 2)
    for k in range(1 + (df + 1) % 2, df, 2):
        first += (x / 2) ** (k / 2) * math.exp(-x / 2) / math.gamma(k / 2 + 1)
    return first


def mantel_haenszel(strata):
    """Both sums of the pooled ratio; a stratum is runs of (a, n, b, m)."""
    above = below = 0.0
    for rows in strata:
        a, n, b, m = (sum(row[i] for row in rows) for i in range(4))
        above += a * m / (n + m)
        below += b * n / (n + m)
    return above, below


def pooled_log_se(strata):
    """By how much log R moves when a total moves, and how totals of runs vary within strata."""

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
