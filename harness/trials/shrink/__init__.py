"""Shrinking: from a failing case to the smallest case that fails in the same way.

| module     | content                                                                    |
|------------|----------------------------------------------------------------------------|
| course     | `shrink`: which reductions are tried, and in which order                   |
| search     | the best case so far; tries candidates with several seeds                  |
| faults     | fewer, earlier and shorter faults, in plain words                          |
| points     | one fault at a point of the code, in place of faults at planned times      |
| load       | time limit, clients, nodes, options and knobs                              |
| operations | a list of operations instead of the generator; then fewer operations       |
"""

from harness.trials.shrink.course import Shrunk, shrink
from harness.trials.shrink.search import Step

__all__ = ["Shrunk", "Step", "shrink"]
