"""Defects planted in the bundled target, one at a time: what default soaks must find.

They are swapped in by monkeypatching, in the simulation only, and shipped nowhere. They are of the
kinds that real systems had; none is tuned to a checker.
"""
