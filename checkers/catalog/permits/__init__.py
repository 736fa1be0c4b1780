"""Judging a catalog history under what its profile permits (`harness.permits`).

Asked only where no order explains the history strictly. Writes stay linearizable, whatever the
profile: each takes effect once, between its call and its return. What a permit changes is what an
*observation* (a read, or a refusal by what was seen) must have seen:

* `stale-read`: not what was acknowledged in a later term than the answer's own, by another node.
  A leader has all that was acknowledged in its term and before, so an answer that lacks more is
  not stale but wrong; and what one master showed, it may not take back. The answer is still the
  catalog of some moment before it was given.
* `torn-list`: a list is one look at each name, each at a moment of its own. A name that a rename
  may have touched meanwhile may be left out.
* `name-gap`: "not found" says nothing while a rename or delete of that name may be under way.
* `dirty-create`: a create shows its table, and keeps its name, from its call on, also where it
  then fails. What shows that, while it may be under way, says nothing.
* `ddl-twice`: a change that was sent more than once may act once more, at any later time.
* `lost-after-power-cut`: after each power cut the catalog may fall back to any earlier one, but
  loses no acknowledged change that was asked for after the cut.

The judgement is exact: there is an order of all operations that keeps these rules, or there is
none, or the search came to its bound. What was complete before the first power cut is judged
without it first, since that takes fewer steps. One permit after the other is tried
before all together, so that what one explains is not put down to two.
"""

from checkers.catalog.permits.judge import Permitted, judge_permitted

__all__ = ["Permitted", "judge_permitted"]
