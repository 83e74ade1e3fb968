"""Dependencies of workers are started in order and shut down in reverse order."""

from __future__ import annotations

import pytest

from keelbolt.errors import KeelboltError
from keelbolt.kernel import open_storage
from keelbolt.tasks import Dependencies, Dependency, TaskContext, TaskEngine


class Part(Dependency):
    """Records its start and shutdown."""

    def __init__(self, name: str, calls: list[str], *, fails: str = "") -> None:
        self.name = name
        self.calls = calls
        self.fails = fails

    async def startup(self) -> None:
        if self.fails == "startup":
            raise OSError("no route")
        self.calls.append(f"+{self.name}")

    async def shutdown(self) -> None:
        self.calls.append(f"-{self.name}")
        if self.fails == "shutdown":
            raise OSError("broken pipe")


async def nothing(ctx: TaskContext) -> None:
    await ctx.complete()


async def test_by_type_and_by_name() -> None:
    given = Dependencies({dict: {"a": 1}, "model": "m", int: None})
    assert given[dict] == {"a": 1}
    assert given["model"] == "m"
    assert given[int] is None
    assert "model" in given
    assert "other" not in given
    assert given.get("other", 5) == 5


@pytest.mark.parametrize(("key", "name"), [(list, "list"), ("model", "'model'")])
def test_the_error_for_a_missing_dependency_says_how_to_pass_it(key: type | str, name: str) -> None:
    with pytest.raises(KeyError, match=f"no dependency {name}; pass it to the server"):
        Dependencies()[key]


async def test_order() -> None:
    """Dependencies start in the given order and shut down in reverse; objects without these methods are ignored."""
    calls: list[str] = []
    given = Dependencies({"a": Part("a", calls), "plain": object(), "b": Part("b", calls)})
    await given.start()
    await given.stop()
    await given.stop()
    assert calls == ["+a", "+b", "-b", "-a"]


async def test_a_failed_start_is_undone() -> None:
    """If a dependency fails to start, the earlier ones are shut down, and the error names the failed one."""
    calls: list[str] = []
    given = Dependencies({"a": Part("a", calls), "b": Part("b", calls, fails="startup"), "c": Part("c", calls)})
    with pytest.raises(KeelboltError, match="'b' failed to start: no route"):
        await given.start()
    assert calls == ["+a", "-a"]


async def test_a_failed_shutdown_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    given = Dependencies({"a": Part("a", calls), "b": Part("b", calls, fails="shutdown")})
    await given.start()
    await given.stop()
    assert calls == ["+a", "+b", "-b", "-a"]
    assert "broken pipe" in caplog.text


async def test_dependencies_live_as_long_as_the_engine() -> None:
    """They start before the first task and shut down after the last one; without a worker they do not start."""
    calls: list[str] = []
    async with open_storage("memory:") as kernel:
        async with TaskEngine(kernel, nothing, dependencies={"a": Part("a", calls)}):
            assert calls == ["+a"]
        assert calls == ["+a", "-a"]
        async with TaskEngine(kernel, dependencies={"a": Part("a", calls)}):
            pass
    assert calls == ["+a", "-a"]


async def test_an_engine_that_fails_to_start_leaves_no_dependency_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the runner can't start, the started dependencies are shut down."""
    calls: list[str] = []
    async with open_storage("memory:") as kernel:
        engine = TaskEngine(kernel, nothing, dependencies={"a": Part("a", calls)})
        assert engine.runner is not None

        async def fails() -> None:
            raise KeelboltError("no lease")

        monkeypatch.setattr(engine.runner, "start", fails)
        with pytest.raises(KeelboltError, match="no lease"):
            await engine.__aenter__()
    assert calls == ["+a", "-a"]
