"""Hypothesis strategies for everything that A2A can express."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st

from keelbolt.protocol.requests import (
    CancelTaskRequest,
    CreatePushConfigRequest,
    DeletePushConfigRequest,
    GetPushConfigRequest,
    GetTaskRequest,
    ListPushConfigsRequest,
    ListTasksRequest,
    PushConfig,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from keelbolt.protocol.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    WireModel,
)
from keelbolt.protocol.v03_values import DATA_MARK, FILENAME_MARK, MEDIA_TYPE_MARK

M = TypeVar("M", bound=WireModel)
Strategy = st.SearchStrategy[Any]

texts = st.text(max_size=20)
ids = st.text(min_size=1, max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(
    st.text(max_size=6).filter(lambda name: name not in {DATA_MARK, FILENAME_MARK, MEDIA_TYPE_MARK}),
    json_values,
    min_size=1,
    max_size=3,
)
uris = st.lists(ids, min_size=1, max_size=2)
timestamps = st.datetimes().map(lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S}.123Z".rjust(24, "0"))


def _models(model: type[M], needed: dict[str, Strategy], optional: dict[str, Strategy]) -> st.SearchStrategy[M]:
    """Models with only some fields set, as if they were parsed."""
    return st.fixed_dictionaries(needed, optional=optional).map(lambda given: model(**given))


extras: dict[str, Strategy] = {"metadata": metadata, "filename": texts, "media_type": texts}
parts = (
    _models(Part, {"text": texts}, extras)
    | _models(Part, {"raw": st.binary(max_size=10)}, extras)
    | _models(Part, {"url": texts}, extras)
    | _models(Part, {"data": json_values}, extras)
)
some_parts = st.lists(parts, min_size=1, max_size=3)


def messages(*, references: bool = True, role: Role | None = None) -> st.SearchStrategy[Message]:
    optional: dict[str, Strategy] = {"context_id": ids, "task_id": ids, "metadata": metadata, "extensions": uris}
    if references:
        optional["reference_task_ids"] = uris
    roles = st.just(role) if role else st.sampled_from(Role)
    return _models(Message, {"message_id": ids, "role": roles, "parts": some_parts}, optional)


artifacts = _models(
    Artifact,
    {"artifact_id": ids, "parts": some_parts},
    {"name": texts, "description": texts, "metadata": metadata, "extensions": uris},
)


def statuses(*, references: bool = True) -> st.SearchStrategy[TaskStatus]:
    optional: dict[str, Strategy] = {"message": messages(references=references), "timestamp": timestamps}
    return _models(TaskStatus, {"state": st.sampled_from(TaskState)}, optional)


def tasks(*, references: bool = True) -> st.SearchStrategy[Task]:
    history = st.lists(messages(references=references), max_size=2)
    return _models(
        Task,
        {"id": ids, "context_id": ids, "status": statuses(references=references)},
        {"artifacts": st.lists(artifacts, max_size=2), "history": history, "metadata": metadata},
    )


def status_updates(*, references: bool = True) -> st.SearchStrategy[TaskStatusUpdateEvent]:
    needed: dict[str, Strategy] = {"task_id": ids, "context_id": ids, "status": statuses(references=references)}
    return _models(TaskStatusUpdateEvent, needed, {"metadata": metadata})


artifact_updates = _models(
    TaskArtifactUpdateEvent,
    {"task_id": ids, "context_id": ids, "artifact": artifacts},
    {"append": st.booleans(), "last_chunk": st.booleans(), "metadata": metadata},
)


def events(*, references: bool = True) -> Strategy:
    return (
        tasks(references=references)
        | messages(references=references)
        | status_updates(references=references)
        | artifact_updates
    )


authentication = st.fixed_dictionaries({"scheme": ids}, optional={"credentials": ids})
push_configs = _models(
    PushConfig,
    {"url": st.just("https://example.com/hook?x=1"), "task_id": ids},
    {"id": ids, "token": ids, "authentication": authentication},
)
inline_configs = _models(
    PushConfig,
    {"url": st.just("http://example.com")},
    {"id": ids, "token": ids, "authentication": authentication},
)
configurations = st.fixed_dictionaries(
    {"return_immediately": st.booleans()},
    optional={
        "accepted_output_modes": st.lists(texts, max_size=2),
        "history_length": st.integers(0, 2**31 - 1),
        "task_push_notification_config": inline_configs,
    },
)
moments = st.datetimes().map(lambda moment: moment.replace(microsecond=0).isoformat().rjust(19, "0") + "Z")
requests = (
    _models(
        SendMessageRequest,
        {"message": messages(role=Role.user)},
        {"configuration": configurations, "metadata": metadata},
    )
    | _models(GetTaskRequest, {"id": ids}, {"history_length": st.integers(0, 2**31 - 1)})
    | _models(
        ListTasksRequest,
        {},
        {
            "context_id": ids,
            "status": st.sampled_from(TaskState),
            "page_size": st.integers(1, 100),
            "page_token": ids,
            "history_length": st.integers(0, 100),
            "status_timestamp_after": moments,
            "include_artifacts": st.booleans(),
        },
    )
    | _models(CancelTaskRequest, {"id": ids}, {"metadata": metadata})
    | _models(SubscribeToTaskRequest, {"id": ids}, {})
    | push_configs.map(lambda config: CreatePushConfigRequest(task_id=config.task_id or "", config=config))
    | _models(GetPushConfigRequest, {"task_id": ids, "id": ids}, {})
    | _models(ListPushConfigsRequest, {"task_id": ids}, {})
    | _models(DeletePushConfigRequest, {"task_id": ids, "id": ids}, {})
)
