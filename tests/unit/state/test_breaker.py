"""The circuit breaker opens, waits longer after each failure, and closes at the first success."""

from __future__ import annotations

from keelbolt.state.engine.connection import Breaker


def test_the_breaker_opens_and_closes() -> None:
    now = [0.0]
    breaker = Breaker(failures=2, cooldown_seconds=1.0, longest_seconds=3.0, now=lambda: now[0])
    breaker.failed()
    assert (breaker.state, breaker.allows()) == ("closed", True)
    breaker.failed()
    assert (breaker.state, breaker.allows(), breaker.seconds_left()) == ("open", False, 1.0)
    waits = []
    for _ in range(3):
        now[0] += breaker.seconds_left()
        assert breaker.state == "half-open"
        breaker.failed()
        waits.append(breaker.seconds_left())
    assert waits == [2.0, 3.0, 3.0]
    now[0] += 3.0
    breaker.succeeded()
    assert breaker.state == "closed"
    breaker.failed()
    breaker.failed()
    assert breaker.seconds_left() == 1.0


def test_one_of_many_concurrent_calls_is_admitted() -> None:
    now = [0.0]
    breaker = Breaker(failures=1, cooldown_seconds=1.0, now=lambda: now[0])
    assert [breaker.admits(), breaker.admits()] == [True, True]
    breaker.failed()
    assert not breaker.admits()
    now[0] += 1.0
    assert [breaker.admits(), breaker.admits()] == [True, False]
    now[0] += 1.0  # the admitted call never returned a result
    assert [breaker.admits(), breaker.admits()] == [True, False]
    breaker.succeeded()
    assert [breaker.admits(), breaker.admits()] == [True, True]
