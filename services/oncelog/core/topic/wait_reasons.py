"""Why a topic is not served: what it waits for, since when, and what helps.

The topic knows the state of the takeover. Its shell adds why the last one failed, failed requests for records and ids,
and the unreachable storage nodes. This module combines them for the topic's statistics, for metrics, and for the
retriable error that waiting clients get.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from oncelog.core.chain.next_ledger import NextState
from oncelog.core.chain.replay import TakeoverFailed
from oncelog.core.errors import (
    BY_CODE,
    CorruptEntry,
    EntriesLost,
    IdsExhausted,
    LedgerUnavailable,
    LogHole,
    NotEnoughStorageNodes,
    OncelogError,
    Retriable,
    StoreUnavailable,
    TopicLoading,
    UnreadableEntry,
)
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.topic.topic import Phase, Topic

_MOVING = "the topic is moving to another owner"
_NOT_SERVED = "the topic cannot be served now"
#: {error code: what helps}
_HELP: dict[str, str] = {
    UnreadableEntry.code: "start the storage nodes of this ledger with their newest directories; if there are none, "
    "give up what is lost: oncelog admin ledger end LEDGER",
    LedgerUnavailable.code: "start the listed storage nodes with their directories; if they are gone for ever, give up "
    "what only they have: oncelog admin ledger end LEDGER",
    EntriesLost.code: "start a storage node that still has a copy in its directory; if there is none, give the entries "
    "up: oncelog admin ledger end LEDGER",
    LogHole.code: "find the lost ledger, or restore ZooKeeper and the storage nodes from the same backup",
    # A record of another format is sound, and a copy of it in a backup has the same format.
    CorruptEntry.code: "if this version does not read its format, start the version that has written it; if the record "
    "or entry is damaged, restore it from a backup",
    UnknownFormat.code: "start the version that has written this entry",
    StoreUnavailable.code: "check the ZooKeeper servers and the network to them",
    NotEnoughStorageNodes.code: "start the listed storage nodes",
    IdsExhausted.code: "compare the counters below /ids in ZooKeeper with a backup",
    TopicLoading.code: "wait: the takeover is running",
}


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a topic waits. code: of the error behind it. ledger_id, entry_id, last_entry_id: None where unknown; the last
    one only for a range. members: {storage node: the request to it, or its response}. since_ms: since 1970."""

    code: str
    message: str
    since_ms: int = 0
    ledger_id: LedgerId | None = None
    entry_id: EntryId | None = None
    members: Mapping[str, str] = field(default_factory=dict)
    last_entry_id: EntryId | None = None
    #: what helps, if that is not what helps in general with this code
    advice: str = ""

    @property
    def help(self) -> str:
        return self.advice or _HELP.get(self.code, "check the log of the topic owner")

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "since_ms": self.since_ms,
            "ledger_id": self.ledger_id,
            "entry_id": self.entry_id,
            "last_entry_id": self.last_entry_id,
            "members": dict(self.members),
            "help": self.help,
        }

    def error(self) -> Retriable:
        """The error for clients that wait for the topic."""
        cls = BY_CODE.get(self.code, TopicLoading)
        lead = _MOVING if self.code == TopicLoading.code else _NOT_SERVED
        message = f"{lead} ({self.code}): {self.message}; {self.help}"
        if cls is LedgerUnavailable:
            waiting_for = ",".join(self.members)
            return cls(
                message, ledger_id=self.ledger_id, first=self.entry_id, last=self.last_entry_id, waiting_for=waiting_for
            )
        return cls(message) if issubclass(cls, Retriable) else TopicLoading(message, reason=self.code)


class WaitReasons:
    """The wait reasons of one topic."""

    def __init__(self, core: Topic) -> None:
        self._core = core
        #: {what is requested: why the request failed}
        self._asked: dict[str, OncelogError] = {}
        #: why the last takeover failed; None once a takeover succeeded
        self.failure: TakeoverFailed | None = None
        #: the last reason, which keeps its time
        self._last: WaitReason | None = None

    def failed(self, what: str, error: OncelogError) -> None:
        """A request for `what` failed and will be repeated."""
        self._asked[what] = error

    def answered(self, what: str) -> None:
        """A request for `what` was answered."""
        self._asked.pop(what, None)

    def current(self, now_ms: int, unreachable: Container[Incarnation] = ()) -> WaitReason | None:
        """What the topic waits for now; None: it is served. unreachable: storage nodes that refuse connections."""
        found = self._found(unreachable)
        before = self._last
        if found is not None:
            same = before is not None and (before.code, before.ledger_id) == (found.code, found.ledger_id)
            since_ms = before.since_ms if before is not None and same else now_ms
            found = replace(found, since_ms=since_ms)
        self._last = found
        return found

    def error(self, now_ms: int) -> Retriable:
        """The error for a request that cannot be answered because the topic is not served."""
        waiting = self.current(now_ms)
        return TopicLoading(f"{_MOVING}: try again") if waiting is None else waiting.error()

    def _found(self, unreachable: Container[Incarnation]) -> WaitReason | None:
        core = self._core
        serving = core.serving
        if core.phase in (Phase.CLOSED, Phase.DEPOSED) or (serving is not None and serving.log.open):
            return None
        for what, error in self._asked.items():
            return WaitReason(error.code, f"{what}: {error.message}")
        if self.failure is not None:
            f = self.failure
            return WaitReason(f.code, f.reason, 0, f.ledger_id, f.entry_id, dict(f.members))
        return self._recovering(unreachable) or self._opening()

    def _recovering(self, unreachable: Container[Incarnation]) -> WaitReason | None:
        takeover = self._core.takeover
        waits = takeover.waits_for() if takeover is not None else None
        if takeover is None or waits is None:
            return None
        ledger_id, entry_id, asked = waits
        entries = takeover.unavailable
        if entries is not None and entries.ledger_id == ledger_id:
            members = dict.fromkeys(entries.waiting_for, "is waited for")
            return WaitReason(
                LedgerUnavailable.code, entries.reason, 0, ledger_id, entries.first, members, entries.last
            )
        nodes = self._core.nodes
        able = {member for member in (*nodes.live, *nodes.read_only) if member not in unreachable}
        members = {member: what if member in able else f"{what}; it cannot be reached" for member, what in asked}
        if takeover.cannot_end(able):
            absent = [member for member, _ in asked if member not in able]
            message = (
                f"ledger {ledger_id} is open and cannot be closed: too few of its members can answer; waiting for "
                f"storage nodes {', '.join(absent)}"
            )
            return WaitReason(LedgerUnavailable.code, message, 0, ledger_id, entry_id, members)
        silent = any(member in unreachable for member, _ in asked)
        code = NotEnoughStorageNodes.code if silent else TopicLoading.code
        message = f"the takeover ({takeover.state.value}) waits for {len(members)} members of ledger {ledger_id}"
        return WaitReason(code, message, 0, ledger_id, entry_id, members)

    def _opening(self) -> WaitReason:
        core = self._core
        serving = core.serving
        if serving is not None:
            following = serving.log.ledgers.next
        elif core.takeover is not None:
            following = core.takeover.next_ledger
        else:
            return WaitReason(TopicLoading.code, f"the topic is {core.phase.value}")
        if following.state is not NextState.WAITING:
            return WaitReason(TopicLoading.code, f"the topic is {core.phase.value}")
        return _too_few(following.nodes, following.settings.ack_quorum)


def _too_few(nodes: StorageNodesUpdated, ack_quorum: int) -> WaitReason:
    """No ledger can be opened. What helps depends on the nodes that are listed: a full disk needs other help than a
    node that is absent."""
    set_read_only = [node for node in nodes.read_only if node not in nodes.full]
    kinds = (
        (nodes.full, "has no space", "free disk space on them or enlarge their volumes"),
        (nodes.absent, "is absent", "start those that are absent"),
        (set_read_only, "was set read-only", "make those that were set read-only writable"),
    )
    members: dict[str, str] = {node: state for some, state, _ in kinds for node in some}
    advice = [advice for some, _, advice in kinds if some]
    message = f"{len(nodes.live)} storage nodes are live and writable, and each entry needs {ack_quorum} copies"
    if nodes.full:
        message = f"storage nodes have no space: {', '.join(nodes.full)}; {message}"
    return WaitReason(
        NotEnoughStorageNodes.code,
        message,
        members=members,
        advice=", ".join([*advice, "or add storage nodes"]) if advice else "add storage nodes",
    )
