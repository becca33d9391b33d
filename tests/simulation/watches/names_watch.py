"""Whether the names of gateways' clients are taken from them too early, as the owner of a topic grants them.

An opening that fences nobody is granted a name only after

    the holder's session   has been asked for whether its client is there, and 8 s have passed without an answer
    the name was kept      2 s have passed since the session ended without giving up its name

It is refused because of a holder only if that holder's gateway has said, since it was asked for this opening, that its
client is there.
"""

from typing import TYPE_CHECKING, Protocol

from oncelog.core.formats.entry import ProducerOpened
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.ids import ProducerId, SessionNumber
from oncelog.core.publishing.held_names import KEPT_MS, WANTED_MS
from oncelog.core.publishing.sessions import Sessions, TopicSession
from oncelog.verify.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.servers.owners.topic_shell import TopicShell


class GatewayLink(Protocol):
    """The stream of a client to an owner, on which sessions for clients of a gateway may be."""

    def wanted(self, session: SessionNumber) -> None: ...


class NamesWatch:
    """Of one topic at one owner, from a takeover on: then holders have the time to come back that all holders have."""

    def __init__(self, shell: "TopicShell") -> None:
        self._shell = shell
        #: {session whose gateway was asked: when}; {producer whose name is kept: since when}
        self._asked: dict[SessionNumber, int] = {}
        self._kept: dict[ProducerId, int] = {}
        #: {call: when it came}; {session: when its gateway said that its client is there}
        self._came: dict[int, int] = {}
        self._held: dict[SessionNumber, int] = {}

    @property
    def _now(self) -> int:
        return self._shell.owner.world.now

    @property
    def _sessions(self) -> Sessions | None:
        serving = self._shell.core.serving
        return None if serving is None else serving.sessions

    def wanted(self, session: SessionNumber) -> None:
        self._shell.owner.world.count("name wanted")
        self._asked[session] = self._now

    def held(self, session: SessionNumber) -> None:
        self._held[session] = self._now
        if self._asked.pop(session, None) is not None:
            self._shell.owner.world.count("name held")

    def asks(self, call: int) -> None:
        self._came[call] = self._now

    def check_busy(self, call: int, opening: ProducerOpening) -> None:
        """The opening is refused, because the name is taken. Raises Violation."""
        sessions = self._sessions
        pid = None if sessions is None or opening.name is None else sessions.table.producer_id_of(opening.name)
        holder = None if sessions is None or pid is None else sessions.session_of(pid)
        if holder is not None and holder.client is not None:
            held = self._held.get(holder.number, -1)
            if held < self._came.get(call, 0):
                raise Violation(
                    "silent holders", f"{opening.name!r} is refused, and {holder.number} last spoke at {held}"
                )

    def closes(self, session: SessionNumber, *, keeps_name: bool) -> None:
        """Before the owner hears of it."""
        closing = None if self._sessions is None else self._sessions.open_sessions.get(session)
        if closing is not None and closing.client is not None and keeps_name and self._is_newest(closing):
            self._shell.owner.world.count("name kept")
            self._kept[closing.instance.producer_id] = self._now

    def _is_newest(self, session: TopicSession) -> bool:
        return self._sessions is not None and self._sessions.session_of(session.instance.producer_id) is session

    def granted(self, pid: ProducerId) -> None:
        """The producer has a session."""
        self._kept.pop(pid, None)

    def check_grant(self, grant: ProducerOpened) -> None:
        """The grant is appended for an opening that fences nobody. Raises Violation."""
        session = None if self._sessions is None else self._sessions.session_of(grant.producer_id)
        if session is not None and session.client is not None:
            asked = self._asked.get(session.number, self._now)
            if self._now - asked < WANTED_MS:
                raise Violation("held names", f"{grant} takes the name of {session.number}, asked {asked}")
            self._shell.owner.world.count("name taken from a silent holder")
        since = self._kept.get(grant.producer_id)
        if session is None and since is not None and self._now - since < KEPT_MS:
            raise Violation("kept names", f"{grant} takes a name that is kept for a token since {since}")
