"""A tablet keeps results while clients may resend requests. Later resends are refused as stale."""

from hypothesis import example, given
from hypothesis import strategies as st

from targets.kudu.hybrid_clock import from_micros
from targets.kudu.messages import RowError, RowErrorCode
from targets.kudu.tserver import errors as limits
from targets.kudu.tserver.result_tracker import Results, WriteResult

TTL_MS, CLIENTS_MS = 10, 30

STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 8),  # the request's number
        st.integers(0, 3),  # how many earlier requests have no answer yet
        st.integers(0, 12),  # ms since the last write
        st.booleans(),  # whether to reload the results first
    ),
    max_size=40,
)


def at(ms: int) -> int:
    return from_micros(ms * 1000)


# The server forgets a client before its results expire, and the client reuses a number.
FORGOTTEN = [("a", 1, 0, 0), ("a", 1, 0, 10), ("a", 2, 1, 8), ("a", 3, 2, 8), ("a", 4, 3, 0)]


@example([(*step, False) for step in FORGOTTEN], (CLIENTS_MS, TTL_MS), 0)
@given(STEPS, st.sampled_from([(TTL_MS, CLIENTS_MS), (CLIENTS_MS, TTL_MS)]), st.integers(0, 2))
def test_a_write_is_new_known_or_stale_as_its_client_and_time_say(steps, ttls, clients_kept):
    results_ms, clients_ms = ttls

    def fresh() -> Results:
        return Results(
            results_ttl_ms=results_ms, clients_ttl_ms=clients_ms, clients_kept=clients_kept
        )

    results = fresh()
    kept: dict[tuple[str, int], WriteResult] = {}
    stale: dict[str, int] = {}
    last: dict[str, int] = {}
    now_ms = 0
    for index, (client, number, open_below, passed_ms, reload) in enumerate(steps):
        if reload:
            stored = results.store()
            results = fresh()
            results.load(stored)
            assert stored == results.store()
        now_ms += passed_ms + 1
        results.expire(at(now_ms))
        for key, result in list(kept.items()):
            if result.timestamp <= at(now_ms - results_ms):
                stale[key[0]] = max(stale.get(key[0], 0), key[1] + 1)
        kept = {k: r for k, r in kept.items() if k[1] >= stale.get(k[0], 0)}
        forgettable = sorted(last, key=last.__getitem__)[: max(0, len(last) - clients_kept)]
        for one in [c for c in forgettable if last[c] <= now_ms - clients_ms]:
            del last[one]
            stale.pop(one, None)
            kept = {key: result for key, result in kept.items() if key[0] != one}
        for one in "ab":
            for candidate in range(10):
                assert kept.get((one, candidate)) == results.find(one, candidate)
                assert (candidate < stale.get(one, 0)) is results.is_stale(one, candidate)
        assert len(kept) == results.count
        if (client, number) in kept or number < stale.get(client, 0):
            continue
        result = WriteResult(at(now_ms), index, 1)
        first_incomplete = max(0, number - open_below)
        results.add(client, number, first_incomplete, result)
        kept[client, number] = result
        last[client] = now_ms
        stale[client] = max(stale.get(client, 0), first_incomplete)
        kept = {k: r for k, r in kept.items() if k[1] >= stale.get(k[0], 0)}


def test_memory_is_bounded_whatever_clients_do(monkeypatch):
    monkeypatch.setattr(limits, "RESULTS_MAX", 50)
    careful = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    careless = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    for number in range(5000):
        careful.add("a", number, number, WriteResult(at(1) + number, number, 1))
        careful.expire(at(1) + number)
        if not careless.is_full:
            careless.add("a", number, 0, WriteResult(at(1) + number, number, 1))
    assert (careful.count, careful.is_full) == (1, False)
    assert len(careful._by_age) < 1100
    assert (careless.count, careless.is_full) == (50, True)
    assert [careless.makes_room(at(11) + late) for late in (-1, 0)] == [False, True]
    careless.expire(at(12))
    assert (careless.count, careless.is_full) == (0, False)
    assert careless.is_stale("a", 49)


def test_repeated_answers_evict_nothing(monkeypatch):
    monkeypatch.setattr(limits, "RESULTS_MAX", 2)
    results = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    results.add("a", 1, 1, WriteResult(at(1), 1, 1))
    # no request below 2 is incomplete any more, so the first result is removed
    results.add("a", 2, 2, WriteResult(at(2), 2, 1))
    results.add("b", 1, 1, WriteResult(at(3), 3, 1))
    assert results.is_full
    assert [results.makes_room(at(TTL_MS + after)) for after in (1, 2)] == [False, True]


def test_those_that_were_let_in_together_must_all_find_room(monkeypatch):
    monkeypatch.setattr(limits, "RESULTS_MAX", 2)
    monkeypatch.setattr(limits, "CLIENTS_MAX", 2)
    results = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS, clients_kept=0)
    for number, client in enumerate("abcd", 1):  # two more clients than the limit
        results.add(client, 1, 1, WriteResult(at(number), number, 1))
    assert [results.makes_room(at(CLIENTS_MS + after)) for after in (2, 3)] == [False, True]
    monkeypatch.setattr(limits, "CLIENTS_MAX", 9)
    assert [results.makes_room(at(TTL_MS + after)) for after in (2, 3)] == [False, True]


def test_errors_of_rows_are_bounded_as_well(monkeypatch):
    monkeypatch.setattr(limits, "ROW_ERRORS_MAX", 6)
    results = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    errors = tuple(RowError(row, RowErrorCode.NOT_FOUND) for row in range(3))
    full = []
    for number, first_incomplete in enumerate((0, 0, 2, 2)):
        results.add("a", number, first_incomplete, WriteResult(at(number), number, 1, errors))
        full.append(results.is_full)
    # the third request says that the first two were answered, which removes their results
    assert full == [False, True, False, True]
    again = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    again.load(results.store())
    assert again.is_full
    again.expire(at(TTL_MS + 2))
    assert not again.is_full


def test_clients_are_as_many_as_there_may_be_until_a_write_would_let_one_go(monkeypatch):
    monkeypatch.setattr(limits, "CLIENTS_MAX", 3)
    results = Results(results_ttl_ms=TTL_MS, clients_ttl_ms=CLIENTS_MS)
    for number, client in enumerate("abc"):
        assert not results.is_full
        results.add(client, 1, 1, WriteResult(at(number), number, 1))
    assert results.is_full
    assert [results.makes_room(at(CLIENTS_MS) + late) for late in (-1, 0)] == [False, True]
