"""Delays for a receiver that fails."""

from __future__ import annotations

import random

from keelbolt.kernel import Record
from keelbolt.webhooks.receivers import FIRST_SECONDS, LONGEST_SECONDS, DeliveryCursor


def test_the_delay_doubles_from_a_second_to_a_quarter_of_an_hour() -> None:
    dice = random.Random(1)
    cursor, now, waits = DeliveryCursor(7), 1000.0, []
    for _ in range(40):
        cursor = cursor.failed("HTTP 500", now, dice)
        waits.append(cursor.retry_at - now)
        now = cursor.retry_at
    for number, wait in enumerate(waits):
        longest = min(LONGEST_SECONDS, 2.0**number)
        assert longest / 2 <= wait <= longest
    assert len({round(wait, 3) for wait in waits[12:]}) > 20, "those who failed together come back scattered"
    assert cursor.since == 1000
    assert cursor.seq == 7


def test_a_delivery_resets_the_failures() -> None:
    cursor = DeliveryCursor().failed("HTTP 500", 1000.0, random.Random(1)).arrived(3)
    assert cursor == DeliveryCursor(3, delivered=1)


def test_a_replay_is_active_again() -> None:
    failed = DeliveryCursor(5, delivered=4).failed("HTTP 500", 1000.0, random.Random(1)).given_up()
    assert failed.status == "failed"
    assert failed.error == "HTTP 500"
    assert failed.again() == DeliveryCursor(5, delivered=4)
    assert failed.again(2) == DeliveryCursor(2, delivered=4)


def test_a_written_cursor_is_read_back() -> None:
    cursor = DeliveryCursor(5, delivered=4, late=True).failed("HTTP 500", 1000.5, random.Random(1))
    assert DeliveryCursor.of(Record("cursors", "1", 1, cursor.json())) == cursor


def test_a_clock_that_is_set_back_delays_no_attempt() -> None:
    """The delivery does not wait for as long as the clock was wrong."""
    cursor = DeliveryCursor().failed("HTTP 500", 10_000.0, random.Random(1))
    assert 0 < cursor.due_in(10_000.0) <= FIRST_SECONDS
    assert cursor.due_in(10_000.0 + FIRST_SECONDS) <= 0
    assert cursor.due_in(10_000.0 - 7200) == 0
