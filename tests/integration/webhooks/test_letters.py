"""The content of a POST: in the config's version, verifiable by the receiver, and with no secrets in logs."""

from __future__ import annotations

import hashlib
import logging

import jwt
import pytest

from keelbolt.observability.metrics import Metrics
from keelbolt.protocol.requests import Authentication, PushConfig
from keelbolt.protocol.signatures import CardKey
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks import Envelope
from keelbolt.webhooks.delivery import DeliverySettings
from keelbolt.webhooks.signing import verify
from tests.integration.tasks.stage import message
from tests.integration.webhooks.receiver import Receiver, answer
from tests.integration.webhooks.scenario import DeliveryScenario


async def test_in_0_3_the_task_is_sent(quiet_scenario: DeliveryScenario, receiver: Receiver) -> None:
    """The task is sent once for each status, as of that time, and not for each chunk."""
    scenario = quiet_scenario
    await scenario.deliverer()
    config = PushConfig(id="c", url=receiver.url, token="t")
    task_id = await scenario.finished(await scenario.send("chunks 3", config, version=ProtocolVersion.v0_3))
    await scenario.idle(task_id, "c")
    assert [arrival.json["status"]["state"] for arrival in receiver.arrivals] == ["submitted", "working", "completed"]
    for arrival in receiver.arrivals:
        assert arrival.json["kind"] == "task"
        assert arrival.json["id"] == task_id
        assert arrival.headers["content-type"] == "application/json"
        assert arrival.headers["x-a2a-notification-token"] == "t"
    assert [part["text"] for part in receiver.arrivals[-1].json["artifacts"][0]["parts"]] == [
        "chunk 0",
        "chunk 1",
        "chunk 2",
    ]


async def test_a_receiver_can_verify_the_sender(quiet_scenario: DeliveryScenario, receiver: Receiver) -> None:
    """Receivers verify the sender by the requested authentication, the server's and the config's secret, and a JWT."""
    scenario = quiet_scenario
    key, metrics = CardKey.generate("k1"), Metrics()
    await scenario.deliverer(secret="whsec_c2VydmVyIHNlY3JldA==", key=key, metrics=metrics)
    config = PushConfig(
        id="ü.1",
        url=receiver.url,
        token="mine",
        authentication=Authentication(scheme="Bearer", credentials="let me in"),
    )
    push = scenario.configs.new(config)
    task_id = await scenario.finished(await scenario.engine.tasks.send(message("chunks 0"), Envelope(push=push)))
    await scenario.idle(task_id, "ü.1")
    assert len(receiver.arrivals) == 3
    for arrival in receiver.arrivals:
        headers = arrival.headers
        assert headers["authorization"] == "Bearer let me in"
        assert headers["webhook-id"] == f"{task_id}:%C3%BC%2E1:{arrival.seq}"
        assert verify(push.secret, headers, arrival.body)
        assert not verify("mine", headers, arrival.body)
        assert verify("whsec_c2VydmVyIHNlY3JldA==", headers, arrival.body)
        [public] = jwt.PyJWKSet.from_dict(key.jwks()).keys
        claims = jwt.decode(headers["x-a2a-notification-jwt"], public.key, algorithms=["ES256"], audience=receiver.url)
        assert claims["jti"] == headers["webhook-id"]
        assert claims["request_body_sha256"] == hashlib.sha256(arrival.body).hexdigest()
    assert metrics.webhooks == {"sent": 3}


async def test_nothing_secret_is_logged(
    quiet_scenario: DeliveryScenario, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for a delivery that arrives, fails, is postponed, or is given up."""
    caplog.set_level(logging.DEBUG)
    scenario = quiet_scenario
    count = 0

    async def moody(*_: object) -> bytes:
        nonlocal count
        count += 1
        return [answer(500, "x: hidden-answer"), b"hidden-answer", answer(200), answer(410)][min(count, 4) - 1]

    receiver.answering = moody
    await scenario.deliverer(secret="hidden-secret")
    config = PushConfig(
        id="c",
        url=f"{receiver.url}?key=hidden-key",
        token="hidden-token",
        authentication=Authentication(scheme="Bearer", credentials="hidden-credentials"),
    )
    task_id = await scenario.finished(await scenario.send("chunks 1", config))
    await scenario.idle(task_id, "c")
    assert (await scenario.cursor(task_id, "c")).status == "failed"
    assert "is given up" in caplog.text
    assert "hidden" not in caplog.text
    assert "hidden" not in (await scenario.cursor(task_id, "c")).json().decode()
    assert "hidden" not in repr(DeliverySettings(secret="hidden-secret"))


async def test_a_delivery_that_fails_unexpectedly_is_released(
    quiet_scenario: DeliveryScenario,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failure is logged and retried; other deliveries continue."""
    scenario = quiet_scenario
    monkeypatch.setattr("keelbolt.webhooks.delivery.BROKEN_SECONDS", 0.02)
    deliverer = await scenario.deliverer()
    write, broken = deliverer._letters.write, 3

    async def breaking(*given: object) -> object:
        nonlocal broken
        broken -= 1
        if broken >= 0:
            raise RuntimeError("unexpected")
        return await write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(deliverer._letters, "write", breaking)
    task_id = await scenario.finished(await scenario.send("chunks 1", PushConfig(id="c", url=receiver.url)))
    await scenario.until_delivered(receiver, task_id)
    assert "unexpected" in caplog.text
