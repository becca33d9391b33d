"""How a process without a session with ZooKeeper comes to be not ready: late, and only for as long as it lasts."""

import pytest

from oncelog.stores.store_session import SessionAbsence
from tests.contract.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

ALLOWED_MS = 12_000


class Story:
    """A session, a clock that the test moves, and what a probe hears."""

    def __init__(self) -> None:
        self.session = MemorySession(MemoryTree(), root="/oncelog")
        self.now_ms = 5_000
        self.absence = SessionAbsence(self.session, allowed_ms=ALLOWED_MS, now_ms=lambda: self.now_ms)

    def after(self, passed_ms: int) -> str | None:
        self.now_ms += passed_ms
        return self.absence.reason()


async def test_absence_within_what_is_allowed_is_no_reason() -> None:
    """An election of ZooKeeper's meets every process at once: none may become unready by it."""
    story = Story()
    story.session.faults.suspend()
    assert story.after(ALLOWED_MS) is None
    story.session.faults.resume()
    assert story.after(10 * ALLOWED_MS) is None


async def test_longer_absence_is_a_reason_until_there_is_a_session_again() -> None:
    """A process that has lost ZooKeeper must not pass for a good one, and a rollout must not go on by it."""
    story = Story()
    story.session.faults.suspend()
    assert story.after(ALLOWED_MS + 1) == "no session for 12 s"
    story.session.faults.expire()
    assert story.after(8_000) == "no session for 20 s"
    story.session.faults.resume()
    assert story.after(0) is None


async def test_each_absence_is_counted_by_itself() -> None:
    """Two short ones with a session between them are two elections, not one long absence."""
    story = Story()
    for _ in range(3):
        story.session.faults.suspend()
        assert story.after(ALLOWED_MS) is None
        story.session.faults.resume()
    story.session.faults.expire()
    assert story.after(ALLOWED_MS) is None
    assert story.after(1) is not None
