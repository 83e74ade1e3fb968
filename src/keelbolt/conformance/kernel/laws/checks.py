"""Laws of checks: their conditions, the state that they see, and their refusals."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import Append, Draft, Head
from keelbolt.kernel.records import (
    Absent,
    Delete,
    FieldIn,
    FieldNotIn,
    Insert,
    Patch,
    Present,
    Put,
    Replace,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Complete, Enqueue, Fence, Release, Retry

P = "p"
ENTRY = Draft("note", b"x")


@law()
async def version_requires_exactly_this_version(kernel: Kernel) -> None:
    """Version passes at exactly its version; otherwise the refusal has the current one (0: no record)."""
    await refuses(kernel, P, Version("plain", "a", 1), reason="version", found=0)
    await kernel.commit(P, Put("plain", "a", b""))
    await kernel.commit(P, Put("plain", "a", b""))
    await kernel.commit(P, Version("plain", "a", 2))
    await refuses(kernel, P, Version("plain", "a", 1), reason="version", found=2)
    await refuses(kernel, P, Version("plain", "a", 3), reason="version", found=2)


@law()
async def absent_requires_that_there_is_no_record(kernel: Kernel) -> None:
    """Absent passes if there is no record, also after a delete; otherwise the refusal has the version."""
    await kernel.commit(P, Absent("plain", "a"))
    await kernel.commit(P, Put("plain", "a", b""))
    await refuses(kernel, P, Absent("plain", "a"), reason="absent", found=1)
    await kernel.commit(P, Delete("plain", "a"))
    await kernel.commit(P, Absent("plain", "a"))


@law()
async def present_requires_a_record(kernel: Kernel) -> None:
    """Present passes if there is a record of any version, and is refused if there is none."""
    await refuses(kernel, P, Present("plain", "a"), reason="present", found=0)
    await kernel.commit(P, Put("plain", "a", b""))
    await kernel.commit(P, Present("plain", "a"))
    await kernel.commit(P, Put("plain", "a", b""), Present("plain", "a"))
    await kernel.commit(P, Delete("plain", "a"), Present("plain", "a"))
    await refuses(kernel, P, Present("plain", "a"), reason="present", found=0)


@law()
async def field_in_requires_one_of_the_values(kernel: Kernel) -> None:
    """FieldIn passes if the field has one of the values; otherwise the refusal has the stored value."""
    await refuses(kernel, P, FieldIn("things", "a", "state", ("new",)), reason="present", found=0)
    await kernel.commit(P, Put("things", "a", b"", {"state": "new"}))
    await kernel.commit(P, FieldIn("things", "a", "state", ("old", "new")))
    await refuses(kernel, P, FieldIn("things", "a", "state", ("old", "NEW")), reason="field", found="new")
    await refuses(kernel, P, FieldIn("things", "a", "state", ()), reason="field", found="new")
    await kernel.commit(P, FieldIn("things", "a", "rank", (None, 1)))
    await refuses(kernel, P, FieldIn("things", "a", "rank", (0,)), reason="field", found=None)


@law()
async def field_not_in_requires_none_of_the_values(kernel: Kernel) -> None:
    """FieldNotIn passes if the record exists and its field has none of the values; else the refusal has the value."""
    await refuses(kernel, P, FieldNotIn("things", "a", "state", ("done",)), reason="present", found=0)
    await kernel.commit(P, Put("things", "a", b"", {"state": "done", "rank": 0}))
    await refuses(kernel, P, FieldNotIn("things", "a", "state", ("failed", "done")), reason="field", found="done")
    await refuses(kernel, P, FieldNotIn("things", "a", "rank", (0,)), reason="field", found=0)
    await refuses(kernel, P, FieldNotIn("things", "a", "owner", (None,)), reason="field", found=None)
    await kernel.commit(P, FieldNotIn("things", "a", "state", ("failed",)), FieldNotIn("things", "a", "state", ()))


@law()
async def head_requires_exactly_this_head(kernel: Kernel) -> None:
    """Head passes at exactly its seq (0: an empty stream); otherwise the refusal has the head."""
    await kernel.commit(P, Head("log", "s", 0))
    await kernel.commit(P, Append("log", "s", (ENTRY, ENTRY)))
    await kernel.commit(P, Head("log", "s", 2))
    await refuses(kernel, P, Head("log", "s", 1), reason="head", found=2)
    await refuses(kernel, P, Head("log", "s", 3), reason="head", found=2)
    await refuses(kernel, P, Head("log", "s", 0), reason="head", found=2)


@law()
async def fence_requires_that_the_item_is_held_under_it(kernel: Kernel) -> None:
    """Fence passes while the item is held under exactly this fence, never for a waiting or unknown item."""
    await refuses(kernel, P, Fence("runs", "a", 1), reason="fence", found=0)
    await kernel.commit(P, Enqueue("runs", "a"))
    await refuses(kernel, P, Fence("runs", "a", 1), reason="fence")
    (claim,) = await kernel.claim("runs", "w")
    await kernel.commit(P, claim.fenced())
    await refuses(kernel, P, Fence("runs", "a", claim.fence + 1), reason="fence", found=claim.fence)
    await kernel.commit(P, claim.release())
    await refuses(kernel, P, claim.fenced(), reason="fence")


@law()
async def every_refusal_names_its_check(kernel: Kernel) -> None:
    """A refusal has its reason, the operation that failed and the stored value, for every operation that checks."""
    await kernel.commit(P, Put("things", "a", b"", {"state": "new"}), Enqueue("runs", "held"), Enqueue("free", "a"))
    (claim,) = await kernel.claim("runs", "w")
    fence, stale = claim.fence, claim.fence + 1
    await refuses(kernel, P, Insert("things", "a", b""), reason="absent", found=1)
    await refuses(kernel, P, Replace("things", "a", 2, b""), reason="version", found=1)
    await refuses(kernel, P, Replace("things", "none", 1, b""), reason="version", found=0)
    await refuses(kernel, P, Patch("things", "a", {"rank": 1}, version=5), reason="version", found=1)
    await refuses(kernel, P, Patch("things", "none", {"rank": 1}), reason="present", found=0)
    await refuses(kernel, P, Patch("things", "none", {"rank": 1}, version=1), reason="version", found=0)
    await refuses(kernel, P, Delete("things", "a", version=2), reason="version", found=1)
    await refuses(kernel, P, Delete("things", "none", version=1), reason="version", found=0)
    await refuses(kernel, P, Take("things", "none"), reason="present", found=0)
    await refuses(kernel, P, Complete("runs", "held", stale), reason="fence", found=fence)
    await refuses(kernel, P, Release("runs", "held", stale), reason="fence", found=fence)
    await refuses(kernel, P, Retry("runs", "held", stale, "why"), reason="fence", found=fence)
    await refuses(kernel, P, Bury("runs", "held", stale, "why"), reason="fence", found=fence)
    await refuses(kernel, P, Complete("runs", "none", 1), reason="fence", found=0)
    await refuses(kernel, P, Enqueue("runs", "held", worker="other"), reason="held", found=fence)
    await refuses(kernel, P, Attach("f" * 64, "a"), reason="blob")


@law()
async def a_refusal_says_that_nothing_was_written(kernel: Kernel) -> None:
    """The message of a refusal names the record, stream or item and says that nothing was written."""
    refusal = await refuses(kernel, P, Version("plain", "a-key", 3), reason="version", found=0)
    for words in ("plain", "a-key", "nothing of this commit was written"):
        equal(words in str(refusal), True, f"whether the message {str(refusal)!r} has {words!r}")


@law()
async def checks_see_the_state_before_the_commit(kernel: Kernel) -> None:
    """All checks of a commit see the state before it, whether they precede or follow its writes."""
    await kernel.commit(P, Insert("plain", "a", b""), Absent("plain", "a"))
    await kernel.commit(P, Version("plain", "a", 1), Put("plain", "a", b""), Version("plain", "a", 1))
    await refuses(kernel, P, Put("plain", "a", b""), Version("plain", "a", 3), reason="version", found=2)
    await kernel.commit(P, Append("log", "s", (ENTRY,)), Head("log", "s", 0))
    await refuses(kernel, P, Append("log", "s", (ENTRY,)), Head("log", "s", 2), reason="head", found=1)
    await kernel.commit(P, Put("things", "a", b"", {"state": "new"}))
    await kernel.commit(P, Patch("things", "a", {"state": "done"}), FieldIn("things", "a", "state", ("new",)))
    await kernel.commit(P, Take("things", "a"), FieldIn("things", "a", "state", ("done",)))
    fence = (await kernel.commit(P, Enqueue("runs", "a", worker="w"))).fence("runs", "a")
    await kernel.commit(P, Complete("runs", "a", fence), Fence("runs", "a", fence))
    await refuses(kernel, P, Enqueue("runs", "a", worker="w"), Fence("runs", "a", fence + 1), reason="fence", found=0)


@law()
async def a_commit_may_only_check(kernel: Kernel) -> None:
    """A commit of checks alone passes or is refused, and changes nothing."""
    await kernel.commit(P, Put("things", "a", b"", {"state": "new"}), Append("log", "s", (ENTRY,)))
    await kernel.commit(P, Version("things", "a", 1), FieldIn("things", "a", "state", ("new",)), Head("log", "s", 1))
    await refuses(kernel, P, Version("things", "a", 1), Absent("things", "a"), reason="absent", found=1)
    record = await kernel.get(P, "things", "a")
    equal(record.version if record else 0, 1, "the version after checks")
