"""Runs that freeze at the first certain violation (`harness run --freeze`).

The command starts a *holder*, a background process (`harness.up.run_holder`) that conducts the run
and keeps its frozen cluster. The command itself follows the op log, checks it while the run goes
on, and tells the holder to freeze the run. The checks do not disturb the load, since they run in
the command's process and the clients in the holder's.

| module     | content                                                          |
|------------|------------------------------------------------------------------|
| prefix     | certain violations in the first part of a history                |
| conducting | one run on a holder, from its start to its outcome               |
"""
