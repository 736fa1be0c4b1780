"""Faults as data: kinds, targets and times, their words, and the one ledger of a run.

`selectors` choose the targets at the moment of a fault, `schedules` its times, `parser` is the
language of both (`cut leader from members every 10s for 4s`), `nemesis_from_text` makes a nemesis
of a sentence. The `ledger` injects and heals; `door` is the way to it for tests.
"""
