"""A program whose effects are rows, and which kills or stops itself at a named step, once.

    python -m tests.effects.effects_proof.seam_program DATABASE_URL TOPIC BATCH PAUSE_S [SEAM NUMBER SIGNAL MARK]

The product has no hooks for this: the steps are seen by a store around the store, by SQLAlchemy's event before a
commit, and by the function itself. SEAM is reached for the NUMBER-th time: the file MARK is written, then the SIGNAL.
"""

import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from sqlalchemy import Connection, create_engine, event, text

import oncelog
from oncelog_effects import SqlEffects
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.store import SourceNames

#: "ask": the log has answered, and the store is not claimed yet; "compare": it is claimed. "ack": an apply begins while
#: an acknowledgement of earlier ones is under way, or was answered just before.
SEAMS = (
    "attach", "ask", "claim.lock", "claim.commit", "compare", "apply.begin", "apply.lock", "apply.function",
    "apply.commit", "apply.answer", "ack",
)  # fmt: skip
#: In these the row is locked by a transaction that is open.
LOCKED = ("claim.lock", "claim.commit", "apply.lock", "apply.function", "apply.commit")
ACK_AFTER_S = 1.1


class Seam:
    """Where this process ends or stops."""

    def __init__(self, name: str = "", number: int = 0, signal_number: int = 0, mark: str = "") -> None:
        self.doing = "claim"
        self._name = name
        self._left = number
        self._signal = signal_number
        self._mark = mark

    def reached(self, name: str) -> None:
        if name != self._name or self._left <= 0:
            return
        self._left -= 1
        if not self._left:
            Path(self._mark).write_text(name)
            # Of this thread: one that another thread takes lets this one run on for a while.
            signal.pthread_kill(threading.get_ident(), self._signal)


class SeamStore:
    """SqlEffects, and who looks at each step of it."""

    def __init__(self, store: SqlEffects[Connection], seam: Seam) -> None:
        self._store = store
        self._seam = seam
        self._began_at: float | None = None

    async def store_id(self) -> str:
        found = await self._store.store_id()
        self._seam.reached("attach")
        return found

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        def locked(found: StoredPosition | None) -> StoredPosition:
            self._seam.reached("claim.lock")
            return decide(found)

        self._seam.doing = "claim"
        self._seam.reached("ask")
        stored = await self._store.claim(source, names, locked)
        self._seam.reached("compare")
        return stored

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[Connection], Awaitable[None] | None] | None,
    ) -> None:
        self._seam.doing = "apply"
        self._began_at = self._began_at or time.monotonic()
        if time.monotonic() - self._began_at > ACK_AFTER_S:
            self._seam.reached("ack")
        self._seam.reached("apply.begin")
        await self._store.apply(source, claimed, following, run)
        self._seam.reached("apply.answer")


def main(url: str, topic: str, batch: str, pause_s: str, *seam_words: str) -> None:
    seam = Seam()
    if seam_words:
        name, number, signal_number, mark = seam_words
        seam = Seam(name, int(number), int(signal_number), mark)
    engine = create_engine(url)
    event.listen(engine, "commit", lambda _: seam.reached(f"{seam.doing}.commit"))
    store = SeamStore(SqlEffects(engine, stall_timeout=1.0), seam)

    @oncelog.process(topic, subscription="seams", effects=store, batch=int(batch))
    def book(messages: Sequence[oncelog.Message], connection: Connection) -> None:
        seam.reached("apply.lock")
        threading.Event().wait(float(pause_s))  # a slow function: there are acknowledgements before the end
        for message in messages:  # not executemany: behind its pipeline PostgreSQL counts no idle time
            connection.execute(text("INSERT INTO effects_seen VALUES (:message)"), {"message": int(message.value)})
        seam.reached("apply.function")

    oncelog.run(book)


if __name__ == "__main__":
    main(*sys.argv[1:])
