"""A marimo notebook of failing runs: `marimo edit failing_runs.py -- STORE_OR_LAKE`."""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import sys

    import marimo as mo

    import results

    runs = results.open(sys.argv[-1])
    runs
    return mo, runs


@app.cell
def _(mo, runs):
    failing = runs.sql("SELECT run FROM runs WHERE verdict = 'invalid' ORDER BY run")
    mo.stop(failing.empty, "no run failed")
    chosen = mo.ui.dropdown(list(failing["run"]), value=failing["run"][0], label="run")
    chosen
    return (chosen,)


@app.cell
def _(chosen, runs):
    runs.timeline(chosen.value)


@app.cell
def _(chosen, runs):
    run = runs.only(runs=chosen.value)
    run.table("findings").pandas(["checker", "rule", "number", "index", "reason"])
    return (run,)


@app.cell
def _(run):
    # The operations that the checkers name, as clients saw them.
    run.sql("""
        SELECT checker, number, o.* EXCLUDE (target, label, day, run)
        FROM findings JOIN operations o USING (run, index) ORDER BY ALL
    """)


if __name__ == "__main__":
    app.run()
