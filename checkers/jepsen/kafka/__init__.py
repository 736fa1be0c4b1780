"""The history model kafka: append-only logs of messages, which clients send to and poll from.

After `jepsen/tests/kafka.clj`. A key is one log (a partition); a message has an offset in it.
Operations:

* assign and subscribe, with a list of keys: what the process polls from now on. Who assigns keys
  reads them from the beginning; who subscribes shares them with others, and may lose them again.
* send, poll and txn, with micro-operations. `[send key message]` is answered with
  `[send key [offset message]]`, where the offset may be nil. `[poll]` is answered with
  `[poll {key [[offset message] ...]}]`. A txn is atomic, and its messages are visible once it is
  committed. `[rebalance [key ...]]` lists keys that the process lost or got meanwhile.
* crash and debug-topic-partitions, which have no meaning here.

In the vocabulary `logs`, a send or a poll is an object; assigned keys are read from the beginning.

The rules are Jepsen's, under its names (see `rules`):

* inconsistent-offsets: two messages have one offset. duplicate: a message has two offsets.
* G1a: a poll shows a message whose send failed. precommitted-read: a transaction polls a message
  that it sends itself. G1c: transactions that must each precede the other, since one polls what the
  other sent, or ended before the other began.
* lost-write: no poll shows an acknowledged message, but some poll shows a later message of its log.
* unseen: no poll shows an acknowledged message that is the last of its log.
* poll-skip and nonmonotonic-poll: the polls of a process leave out a message, or go back;
  int-poll-skip and int-nonmonotonic-poll: within one operation.
* nonmonotonic-send and int-nonmonotonic-send: messages that a process sent one after the other have
  falling offsets.
* unexpected: a message that was never sent, or was sent only after the poll. This rule is ours.

As in Jepsen, write cycles and gaps between the sends of a transaction are allowed.

Differences from Jepsen, all of which avoid verdicts that a correct system could get:

* Jepsen allows skips and steps back if the test subscribes at all. Here they are allowed to each
  process that subscribed, inside of its operations too, since the log of its rebalances may be
  missing.
* A message is lost only if no poll at all shows it, not even a poll that failed. A poll of a
  subscribed process that has no answer may have consumed it.
* A message is unseen if a process assigned its key later, and then polled `EMPTY_POLLS` times in a
  row without a message of it. Otherwise the verdict is `unknown`: the polls may be too early.
* G1c counts reads (wr) and real time, but not the order of writes (ww), which Kafka does not keep.
* A message that was sent several times, or an offset with several messages, proves no order.
"""

from checkers.jepsen.kafka.model import Kafka

__all__ = ["Kafka"]
