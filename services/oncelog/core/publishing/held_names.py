"""Names that clients of gateways hold, while others want them.

    wanted    an opening that fences no other instance meets a session of a gateway's client. Its gateway is asked
              whether the client is there, and answers that it is, or closes the session. The opening waits meanwhile,
              and a refusal comes last. No answer in 8 s: the client is gone (hazard half-open-session)
    kept      a session ended without giving up its name: its stream broke, or its gateway lost the client. For 2 s the
              name is kept for the token of that client, so that a restart of gateways hands no name to an opening that
              waits for one (hazard name-lost-by-a-restart)
    settling  the client has come back, its former session is ended, and writes of that session are still in flight

Openings that fence take each of these names at once.
"""

from typing import NamedTuple

from oncelog.core.ids import OwnerEpoch, ProducerId, SessionNumber
from oncelog.core.publishing.client_order import SessionClient
from oncelog.core.publishing.opening_queue import HolderNews, Opening
from oncelog.core.publishing.sessions import TopicSession
from oncelog.core.topic_events.effects import NameWanted, StartTopicTimer, Step

WANTED_MS = 8_000
KEPT_MS = 2_000
#: Prefix of the timers' keys.
NAME_TIMER = "name"


class _Wanted(NamedTuple):
    """session: whose gateway was asked."""

    session: SessionNumber
    timer: str


class _Kept(NamedTuple):
    client: SessionClient
    timer: str


class HeldNames:
    """Of one topic at its owner."""

    def __init__(self, step: Step, owner_epoch: OwnerEpoch) -> None:
        self._step = step
        self._owner_epoch = owner_epoch
        self._wanted: dict[ProducerId, _Wanted] = {}
        self._kept: dict[ProducerId, _Kept] = {}
        #: {place: (opening, producer)} of tokens that wait until writes in flight have settled
        self._settling: dict[int, tuple[Opening, ProducerId]] = {}
        self._timers: dict[str, ProducerId] = {}
        self._next_timer = 0
        #: producers whose names the openings that wait for them try again, and what was learnt about their holders
        self.changed: dict[ProducerId, HolderNews | None] = {}

    # --- what openings ask --------------------------------------------------------------------------------------------

    def is_there(self, session: TopicSession, opening: Opening) -> bool | None:
        """Whether the client of this session holds its name against the opening; None: its gateway is asked."""
        if session.client is None:
            return True
        if opening.holder is not None and opening.holder.session == session.number:
            return opening.holder.lives
        pid = session.instance.producer_id
        wanted = self._wanted.get(pid)
        if wanted is None or wanted.session != session.number:
            self._forget_wanted(pid)
            self._wanted[pid] = _Wanted(session.number, self._start(pid, WANTED_MS))
            self._step.emit(NameWanted(session.number))
        return None

    def keeps(self, pid: ProducerId) -> bool:
        """Whether the name of this producer, which has no session, is kept for a token."""
        return pid in self._kept or any(each == pid for _, each in self._settling.values())

    def client_of(self, pid: ProducerId) -> SessionClient | None:
        """The client for which the name is kept."""
        kept = self._kept.get(pid)
        return None if kept is None else kept.client

    # --- what happens -------------------------------------------------------------------------------------------------

    def held(self, session: TopicSession) -> None:
        """The gateway says that the client of this session is there. Answers that nothing waits for are ignored."""
        pid = session.instance.producer_id
        wanted = self._wanted.get(pid)
        if wanted is not None and wanted.session == session.number:
            self._forget_wanted(pid)
            self.changed[pid] = HolderNews(session.number, lives=True)

    def begins(self, pid: ProducerId) -> None:
        """The producer has a session again."""
        was_wanted, was_kept = self._forget_wanted(pid), self._forget_kept(pid)
        if was_wanted or was_kept:
            self.changed[pid] = None

    def ends(self, session: TopicSession, *, keeps_name: bool) -> None:
        """The session is over, and its producer has no other one."""
        pid = session.instance.producer_id
        self._forget_wanted(pid)
        if keeps_name and session.client is not None:
            self._forget_kept(pid)
            self._kept[pid] = _Kept(session.client, self._start(pid, KEPT_MS))
        self.changed[pid] = None

    def time_over(self, key: str) -> None:
        """A timer has fired."""
        pid = self._timers.pop(key, None)
        if pid is None:
            return
        wanted, kept = self._wanted.get(pid), self._kept.get(pid)
        if kept is not None and kept.timer == key:
            del self._kept[pid]
            self.changed[pid] = None
        if wanted is not None and wanted.timer == key:
            del self._wanted[pid]
            self.changed[pid] = HolderNews(wanted.session, lives=False)

    def take_changed(self) -> dict[ProducerId, HolderNews | None]:
        changed, self.changed = self.changed, {}
        return changed

    # --- tokens that wait ---------------------------------------------------------------------------------------------

    def settles(self, opening: Opening, pid: ProducerId) -> None:
        """The opening is tried again when all writes of the producer in flight are decided."""
        self._settling[opening.place] = (opening, pid)

    def left(self, opening: Opening) -> None:
        """It is answered or withdrawn."""
        settling = self._settling.pop(opening.place, None)
        if settling is not None:
            self.changed[settling[1]] = None

    @property
    def settling(self) -> list[Opening]:
        return [opening for opening, _ in self._settling.values()]

    # --- timers -------------------------------------------------------------------------------------------------------

    def _start(self, pid: ProducerId, after_ms: int) -> str:
        self._next_timer += 1
        # An owner may take the topic over again at the same epoch, and its former timers still fire.
        key = f"{NAME_TIMER} {self._owner_epoch}.{self._step.now_ms}.{self._next_timer}"
        self._timers[key] = pid
        self._step.emit(StartTopicTimer(key, after_ms))
        return key

    def _forget_wanted(self, pid: ProducerId) -> bool:
        wanted = self._wanted.pop(pid, None)
        if wanted is not None:
            self._timers.pop(wanted.timer, None)
        return wanted is not None

    def _forget_kept(self, pid: ProducerId) -> bool:
        kept = self._kept.pop(pid, None)
        if kept is not None:
            self._timers.pop(kept.timer, None)
        return kept is not None
