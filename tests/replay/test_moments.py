"""The moments at which a replay may stop are parsed."""

import pytest

from harness.case import Trigger
from harness.errors import UsageError
from harness.replay.moments import AtEvent, AtOp, AtTime, parse_until


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("op=0", AtOp(0)),
        ("op=812", AtOp(812)),
        ("time=8.4", AtTime(8_400_000_000)),
        ("time=8s", AtTime(8_000_000_000)),
        ("event=leader", AtEvent(Trigger(event="leader"))),
        ("event=node-exited:3", AtEvent(Trigger(event="node-exited", nth=3))),
        (
            "event=leader:2,node=m2,term=3",
            AtEvent(Trigger(event="leader", nth=2, where={"node": "m2", "term": "3"})),
        ),
    ],
)
def test_moments_are_parsed(text, moment):
    assert parse_until(text) == moment
    assert parse_until(str(moment)) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "op", "op=", "op=-1", "op=x", "time=", "time=-1", "time=nan", "time=inf", "8.4"),
        *("event=", "event=:2", "event=leader:0", "event=leader:x", "event=leader,term", "ops=1"),
        *("event=leader,=3", "op=\u0663", "event=leader:\u0663"),
    ],
)
def test_mistakes_are_named(text):
    with pytest.raises(UsageError, match="moment"):
        parse_until(text)
