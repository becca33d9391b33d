"""What the log and the open sessions say about a request to open a producer. Nothing here changes anything."""

from oncelog.core.errors import PermissionDenied, ProducerFenced, SessionSuperseded
from oncelog.core.formats.client_token import check_of
from oncelog.core.formats.entry import ADDRESS_BYTES_MAX, GIVEN_UP_GENERATIONS
from oncelog.core.formats.opening import ClientToken, GatewayClient, ProducerOpening
from oncelog.core.ids import NO_INSTANCE, Generation, InstanceId, ProducerId, TopicId
from oncelog.core.publishing import opening_errors
from oncelog.core.publishing.client_order import KnownProducer, SessionClient, TokenVerdict, comes_late, verdict_on
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.held_names import HeldNames
from oncelog.core.publishing.sessions import Sessions


class OpeningRules:
    """Of one topic at its owner."""

    def __init__(self, topic_id: TopicId, sessions: Sessions, names: HeldNames) -> None:
        self._topic_id = topic_id
        self._sessions = sessions
        self._names = names

    @property
    def _table(self) -> DedupTable:
        return self._sessions.log.table

    def producer_id_of(self, event: ProducerOpening) -> ProducerId | None:
        if event.name is not None:
            return self._table.producer_id_of(event.name)
        return self._table.state.unnamed.get(event.instance_id)

    def foreign(self, event: ProducerOpening, pid: ProducerId) -> PermissionDenied | None:
        """The refusal for a name that belongs to another role: it belongs to the first role that opened it."""
        owner = self._table.role_of(pid)
        if not owner or owner == event.role or event.takes_any_name:
            return None
        message = (
            f"producer name {event.name!r} belongs to role {owner}: choose another name, or have role {event.role} "
            "granted the right admin in the namespace"
        )
        return PermissionDenied(message, role=owner)

    def holds(self, event: ProducerOpening, pid: ProducerId) -> bool:
        """Whether this instance has the current generation by a durable grant."""
        _, durable = self._table.generation_of(pid)
        return durable and bool(event.instance_id) and self._table.state.producers[pid].instance_id == event.instance_id

    def fenced(self, pid: ProducerId, generation: Generation, current: Generation) -> ProducerFenced:
        """The error of an older generation. No newer instance need be there: after a loss nobody holds the name, and
        its messages may be lost."""
        nobody = self._table.state.producers[pid].instance_id == NO_INSTANCE
        if nobody and current - generation >= GIVEN_UP_GENERATIONS:
            return opening_errors.given_up(current)
        return opening_errors.fenced_by(current)

    def verdict_on(self, token: ClientToken, pid: ProducerId | None) -> TokenVerdict:
        known = None if pid is None else KnownProducer(check_of(self._topic_id, pid), *self._table.generation_of(pid))
        return verdict_on(token, known)

    def late(self, event: ProducerOpening, pid: ProducerId) -> ProducerFenced | None:
        """The refusal of an opening that comes too late to end the session that the producer has."""
        session = self._sessions.session_of(pid)
        holder = session.client if session is not None else self._names.client_of(pid)
        if event.client is None or holder is None or not comes_late(event.client, event.instance_id, holder):
            return None
        return opening_errors.late_client(event.client.epoch, holder.epoch)

    def superseding(self, event: ProducerOpening, pid: ProducerId) -> SessionSuperseded | None:
        """The end of the producer's session, if a later opening of the same client causes it."""
        session = self._sessions.session_of(pid)
        client = client_of(event.client, event.instance_id)
        if event.client is None or session is None or session.client == client:
            return None
        return opening_errors.superseded_session(event.client.epoch)


def client_of(client: GatewayClient | None, instance_id: InstanceId) -> SessionClient | None:
    """client: of an opening by this instance."""
    return None if client is None else SessionClient(instance_id, client.epoch)


def address_of(event: ProducerOpening) -> str | None:
    """As it fits into a grant; None: unknown."""
    return event.peer.encode("ascii", "replace")[:ADDRESS_BYTES_MAX].decode() or None
