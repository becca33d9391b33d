"""Why a topic is not served: what it waits for, where, since when, and what helps.

The core knows how far a takeover is and why one failed; the shell knows which records and ids it asks for in vain, and
which storage nodes are not reached. Both are put together here, for the topic's statistics, for metrics, and for
clients that wait: the retriable error that they get names the cause.
"""

import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from oncelog.core.errors import (
    BY_CODE,
    CorruptEntry,
    IdsExhausted,
    LogHole,
    NotEnoughStorageNodes,
    OncelogError,
    Retriable,
    StoreUnavailable,
    TopicLoading,
    UnreadableEntry,
)
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.next_ledger import NextState
from oncelog.core.topic.takeover_events import TakeoverFailed
from oncelog.core.topic.topic import Phase, Topic

#: A takeover takes well under this; clients hear of a longer one.
TOLD_AFTER_MS = 3_000
_SERVED = "the topic is being taken over"
#: {error code: what helps}
_HELP: dict[str, str] = {
    UnreadableEntry.code: "bring the storage nodes of this ledger back with their directories, or restore one of them",
    LogHole.code: "find the lost ledger, or restore ZooKeeper and the storage nodes from one backup",
    CorruptEntry.code: "restore the damaged record or entry from a backup",
    StoreUnavailable.code: "look at the ZooKeeper servers and at the network to them",
    NotEnoughStorageNodes.code: "start the storage nodes that are named, or more of them",
    IdsExhausted.code: "compare the counters below /ids in ZooKeeper with a backup",
    TopicLoading.code: "wait: the takeover goes on by itself",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """code: of the error behind it. ledger_id, entry_id: where, as far as known. members: {storage node: what it was
    asked or what it answered}. since_ms: since 1970."""

    code: str
    message: str
    since_ms: int = 0
    ledger_id: LedgerId | None = None
    entry_id: EntryId | None = None
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def help(self) -> str:
        return _HELP.get(self.code, "look at the owner's log")

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "since_ms": self.since_ms,
            "ledger_id": self.ledger_id,
            "entry_id": self.entry_id,
            "members": dict(self.members),
            "help": self.help,
        }

    def error(self) -> Retriable:
        """What clients that wait for the topic are told."""
        cls = BY_CODE.get(self.code, TopicLoading)
        message = f"{_SERVED} and waits ({self.code}): {self.message}; {self.help}"
        return cls(message) if issubclass(cls, Retriable) else TopicLoading(message, reason=self.code)


class Troubles:
    """Of one topic at its owner."""

    def __init__(self, core: Topic) -> None:
        self._core = core
        #: {what is asked for: why it is not had}
        self._asked: dict[str, OncelogError] = {}
        #: why the last takeover failed, until one succeeds
        self.failure: TakeoverFailed | None = None
        #: what was found last, so that it keeps its time
        self._last: Waiting | None = None

    def met(self, what: str, error: OncelogError) -> None:
        """`what` was asked for in vain, and will be again."""
        self._asked[what] = error

    def over(self, what: str) -> None:
        """`what` was answered."""
        self._asked.pop(what, None)

    def why(self, unreachable: Container[Incarnation] = ()) -> Waiting | None:
        """What the topic waits for now; None: it is served. unreachable: storage nodes that are not reached."""
        found = self._found(unreachable)
        before = self._last
        if found is not None:
            same = before is not None and (before.code, before.ledger_id) == (found.code, found.ledger_id)
            since_ms = before.since_ms if before is not None and same else time.time_ns() // 1_000_000
            found = Waiting(found.code, found.message, since_ms, found.ledger_id, found.entry_id, found.members)
        self._last = found
        return found

    def to_tell(self, unreachable: Container[Incarnation] = ()) -> Retriable | None:
        """The error for clients that wait, once the topic has not been served for a while."""
        waiting = self.why(unreachable)
        if waiting is None or time.time_ns() // 1_000_000 - waiting.since_ms < TOLD_AFTER_MS:
            return None
        return waiting.error()

    def error(self) -> Retriable:
        """For a request that cannot be answered because the topic is not served."""
        waiting = self.why()
        return TopicLoading(f"{_SERVED}: try again") if waiting is None else waiting.error()

    def _found(self, unreachable: Container[Incarnation]) -> Waiting | None:
        core = self._core
        serving = core.serving
        if core.phase in (Phase.CLOSED, Phase.DEPOSED) or (serving is not None and serving.log.open):
            return None
        for what, error in self._asked.items():
            return Waiting(error.code, f"{what}: {error.message}")
        if self.failure is not None:
            f = self.failure
            return Waiting(f.code, f.reason, 0, f.ledger_id, f.entry_id, dict(f.members))
        return self._recovering(unreachable) or self._opening()

    def _recovering(self, unreachable: Container[Incarnation]) -> Waiting | None:
        takeover = self._core.attempt.takeover if self._core.attempt is not None else None
        waits = takeover.waits_for() if takeover is not None else None
        if takeover is None or waits is None:
            return None
        ledger_id, entry_id, asked = waits
        away = [member for member, _ in asked if member in unreachable]
        members = {member: f"{what}; it is not reached" if member in away else what for member, what in asked}
        code = NotEnoughStorageNodes.code if away else TopicLoading.code
        message = f"step {takeover.state.value} of the takeover waits for {len(members)} members of ledger {ledger_id}"
        return Waiting(code, message, 0, ledger_id, entry_id, members)

    def _opening(self) -> Waiting:
        core = self._core
        serving = core.serving
        if serving is not None:
            following = serving.log.ledgers.next
        elif core.attempt is not None:
            following = core.attempt.next_ledger
        else:
            return Waiting(TopicLoading.code, f"the topic is {core.phase.value}")
        if following.state is not NextState.WAITING:
            return Waiting(TopicLoading.code, f"the topic is {core.phase.value}")
        nodes, s = following.nodes, following.settings
        message = f"{len(nodes.live)} storage nodes are live and writable, and each entry needs {s.ack_quorum} copies"
        return Waiting(NotEnoughStorageNodes.code, message, 0, None, None, dict.fromkeys(nodes.absent, "is not there"))
