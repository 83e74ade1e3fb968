"""Delays between attempts grow, are bounded, vary, and end."""

from __future__ import annotations

from keelbolt.client.streams import FIRST_SECONDS, MOST_SECONDS, Backoff


def pauses(chance: float, total: float = 1000.0) -> list[float]:
    now = 0.0
    backoff = Backoff(total, lambda: now, lambda: chance)
    found = []
    while (pause := backoff.next()) is not None:
        found.append(pause)
        now += pause
    return found


def test_delays_double_up_to_a_bound() -> None:
    most = pauses(1.0)
    assert most[:4] == [FIRST_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert max(most) == MOST_SECONDS


def test_jitter_halves_them_at_most() -> None:
    assert pauses(0.0)[0] == FIRST_SECONDS / 2
    assert all(low < high for low, high in zip(pauses(0.0)[:8], pauses(1.0)[:8], strict=True))


def test_the_total_time_is_bounded() -> None:
    assert abs(sum(pauses(0.5, total=60.0)) - 60.0) < 1e-6
    assert pauses(0.5, total=0.0) == []


def test_progress_resets_the_delay_and_retry_after_is_used() -> None:
    now = 0.0
    backoff = Backoff(10.0, lambda: now, lambda: 1.0)
    assert [backoff.next(), backoff.next()] == [0.1, 0.2]
    now = 9.0
    backoff.progress()
    assert backoff.attempt == 0
    assert backoff.next(at_least=2.5) == 2.5
    now = 19.5
    assert backoff.next() is None
