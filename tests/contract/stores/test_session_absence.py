"""How a process without a ZooKeeper session becomes unready: late, and only while that lasts."""

import pytest

from oncelog.metadata_store.session.store_session import SessionAbsence
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

ALLOWED_MS = 12_000


class Story:
    """A session, a clock that the test moves, and the result of a probe."""

    def __init__(self) -> None:
        self.session = MemorySession(MemoryTree(), root="/oncelog")
        self.now_ms = 5_000
        self.absence = SessionAbsence(self.session, allowed_ms=ALLOWED_MS, now_ms=lambda: self.now_ms)

    def after(self, passed_ms: int) -> str | None:
        self.now_ms += passed_ms
        return self.absence.reason()


async def test_short_absence_is_no_reason() -> None:
    """An election of ZooKeeper affects every process at once, and must make none unready."""
    story = Story()
    story.session.faults.suspend()
    assert story.after(ALLOWED_MS) is None
    story.session.faults.resume()
    assert story.after(10 * ALLOWED_MS) is None


async def test_long_absence_is_a_reason_until_the_next_session() -> None:
    """A process without ZooKeeper must not look healthy, and a rollout must not continue after it."""
    story = Story()
    story.session.faults.suspend()
    assert story.after(ALLOWED_MS + 1) == "no session for 12 s"
    story.session.faults.expire()
    assert story.after(8_000) == "no session for 20 s"
    story.session.faults.resume()
    assert story.after(0) is None


async def test_each_absence_is_counted_by_itself() -> None:
    """Two short absences with a session between them are two elections, not one long absence."""
    story = Story()
    for _ in range(3):
        story.session.faults.suspend()
        assert story.after(ALLOWED_MS) is None
        story.session.faults.resume()
    story.session.faults.expire()
    assert story.after(ALLOWED_MS) is None
    assert story.after(1) is not None
