"""Faults as data: their targets, their times, the words for both, and the ledger that has them.

`selectors` choose the targets at the moment of a fault, `schedules` its times, `parser` is the
language of both (`cut leader from members every 10s for 4s`), `nemesis_from_text` makes a nemesis
of a sentence. The `ledger` injects and heals; `door` is the way to it for tests.
"""
