"""The history model kafka: append-only logs of messages, which clients send to and poll from.

This follows `jepsen/tests/kafka.clj`. Each key has a log (a partition), in which each message has
an offset. The operations are:

* assign and subscribe, with the list of keys that the process polls from now on. A process that
  assigns keys reads them from the beginning. A process that subscribes to keys shares them with
  other processes, and may lose them again.
* send, poll and txn, with micro-operations. `[send key message]` is answered with `[send key
  [offset message]]`, where the offset may be nil. `[poll]` is answered with `[poll {key [[offset
  message] ...]}]`. A txn is atomic. `[rebalance [key ...]]` lists keys that the process lost or got
  during the operation.

The rules are Jepsen's, with Jepsen's names (see `rules`):

* inconsistent-offsets: two messages have the same offset.
* duplicate: a message has two offsets.
* G1a: a poll shows a message whose send failed.
* precommitted-read: a transaction polls a message that it sends itself.
* G1c: a cycle of transactions, each of which must precede the next (see `cycles`).
* lost-write: no poll shows an acknowledged message, but some poll shows a later message of its log.
* unseen: no poll shows an acknowledged message that is the last of its log.
* poll-skip, nonmonotonic-poll: from one poll of a process to the next, a message is left out, or
  the offset goes back. int-poll-skip and int-nonmonotonic-poll: the same within a single operation.
* nonmonotonic-send, int-nonmonotonic-send: messages that a process sent one after the other have
  falling offsets.
* unexpected: a poll shows a message that was never sent, or was sent only after the poll. This rule
  is an addition to Jepsen's.

Differences from Jepsen, all of which avoid verdicts that a correct system could get:

* In Jepsen, all processes may skip and step back if any process of the test subscribes. Here only a
  process that subscribed may do so.
* A message is lost only if no poll at all shows it, not even a failed poll. An unanswered poll of a
  subscribed process may have consumed it.
* A message is unseen if a process assigned its key later, and then polled `EMPTY_POLLS` times in a
  row without a message of it. Otherwise the verdict is `unknown`.
* G1c does not use the order of writes (ww), which Kafka does not keep.
* A message that was sent several times proves nothing about order, nor does an offset with several
  messages.
"""

from checkers.jepsen.kafka.model import Kafka

__all__ = ["Kafka"]
