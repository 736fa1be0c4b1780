"""Runs that freeze at the first certain violation (`harness run --freeze`).

The command starts a holder (`harness.up.run_holder`), which conducts the run. The command follows
the op log, judges what has happened so far, and asks the holder to freeze the run. The checks do
not disturb the load, since they run in another process than its clients.

| module     | content                                                          |
|------------|------------------------------------------------------------------|
| prefix     | certain violations in the first part of a history                |
| conducting | one run on a holder, from the order to the outcome               |
"""
