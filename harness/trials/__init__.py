"""Tries many variants of one case in the simulation, to shrink a failure or to find its causes.

| module   | content                                                                      |
|----------|------------------------------------------------------------------------------|
| memory   | results on disk                                                              |
| trials   | the engine: variants on worker processes, within a limit, remembered on disk |
| recorded | the operations that a run's generator made, as the explicit list of a case   |
| shrink/  | from a failing case to the smallest case that fails in the same way          |
"""
