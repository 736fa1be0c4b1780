"""Faults as data: kinds, targets and times, their words, and the one ledger of a run.

`selectors` choose the targets of a fault when the fault begins, and `schedules` its times. `parser`
reads faults in words (`cut leader from members every 10s for 4s`), and `nemesis_from_text` turns
them into nemeses. The `ledger` records, injects and heals faults; tests use it through `door`.
"""
