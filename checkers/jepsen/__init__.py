"""Checkers that follow Jepsen's, such as those for sets, counters, banks, queues and locks.

Each of them is both a history model (`harness check --model NAME`) and a checker of runs. It reads
histories in Jepsen's form (`{:f :add, :value 3}`) or in the form of our vocabularies (`{"value":
3}`); see `steps`. Most of them judge each answer separately, in about linear time.

The definitions follow `jepsen/checker.clj` and `jepsen/tests/*.clj` of
https://github.com/jepsen-io/jepsen (commit c4c7473). Each module names its source and the
differences. Three rules are stricter than in Jepsen:

* An operation that ended as `fail` did not happen: its effect must not be seen.
* An effect must not be seen before its operation was invoked.
* A history in which no answer could have been wrong is `unknown`, not valid.

An operation of unknown outcome may take effect at any later time or never.
"""
