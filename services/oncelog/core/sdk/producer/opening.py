"""How a producer gets its session. The part of `session` that deals with owners; `owner_attempts` has its states.

Rules
- The first opening makes a new instance. A granted instance resumes with (producer id, generation). When its id is
  unknown to the owner, it opens by name again and presents both (hazard forgotten-producer).
- All requests of one instance carry its instance id, so the owner recognises repeats. A request that is not answered in
  time is withdrawn before the next one is sent, because it must not be granted later.
"""

from dataclasses import dataclass

from oncelog.core.access import Caller
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import GatewayClient, OnConflict, ProducerInstance
from oncelog.core.ids import (
    NO_INSTANCE,
    NO_SEQUENCE,
    Generation,
    InstanceId,
    OwnerEpoch,
    ProducerId,
    SequenceId,
    SessionNumber,
)
from oncelog.core.sdk.owner_attempts import OPEN_TIMEOUT_MS, AttemptEffect, OpeningPhase, OwnerAttempts
from oncelog.core.sdk.producer.pending_batches import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, PENDING_BYTES_MAX

MESSAGE_BYTES_MAX = 5 * 1024 * 1024
#: Room for the batch's header, lengths and id deltas beside one message of the largest size.
BATCH_OVERHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """name None: the owner assigns one. initial_sequence_id: the last id used; None: continue after the log's last id.

    on_conflict REFUSE: ProducerBusy while another instance is connected. send_timeout_ms None: no limit.
    """

    name: str | None = None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    initial_sequence_id: int | None = None
    send_timeout_ms: int | None = None
    pending_bytes_max: int = PENDING_BYTES_MAX
    in_flight_count_max: int = IN_FLIGHT_COUNT_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    #: after this long without any answer the owner is looked up again
    answer_timeout_ms: int = 30_000
    #: after this long an unanswered look-up or request to open is repeated
    open_timeout_ms: int = OPEN_TIMEOUT_MS
    #: the caller for whom a superuser opens the producer
    on_behalf_of: Caller | None = None
    #: how often the topic has got more partitions; the owner records it for a new name
    growths: int = 0
    #: of a new name: ids up to it count as stored, because another cluster has stored them
    initial_mark: SequenceId = NO_SEQUENCE
    #: of a lease: the producer continues as this instance, behind initial_sequence_id
    lease: ProducerInstance | None = None
    #: the client for which a gateway opens the producer; its token is presented at the first opening
    client: GatewayClient | None = None
    #: of a client that has the same one at each gateway; NO_INSTANCE: random, of this producer alone
    instance_id: InstanceId = NO_INSTANCE


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerGranted:
    """The answer to OpenProducer. last_sequence_id: the persisted mark, -1 for none; not final: at least it.
    for_client: the owner knows that it is for the client of a gateway."""

    attempt: int
    session: SessionNumber
    name: str
    producer_id: ProducerId
    generation: Generation
    last_sequence_id: SequenceId
    final: bool
    owner_epoch: OwnerEpoch
    message_bytes_max: int = MESSAGE_BYTES_MAX
    deduplication: bool = True
    growths: int = 0
    for_client: bool = False


@dataclass(frozen=True, slots=True)
class OpenRefused:
    """The other answer to OpenProducer. owner_epoch 0: unknown."""

    attempt: int
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Ask the owner for a session: ProducerGranted or OpenRefused follows. At most one of resume, present is set.

    on_conflict applies to a new instance; one that was granted before always fences, unless it has expired.
    """

    attempt: int
    name: str | None
    mode: SequenceMode
    on_conflict: OnConflict
    resume: ProducerInstance | None
    present: ProducerInstance | None
    owner_epoch: OwnerEpoch
    instance_id: InstanceId
    on_behalf_of: Caller | None = None
    growths: int = 0
    initial_mark: SequenceId = NO_SEQUENCE
    client: GatewayClient | None = None


@dataclass(frozen=True, slots=True)
class WithdrawOpening:
    """Withdraw the attempt's OpenProducer, if its stream is still open."""

    attempt: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close this session at the owner, if the attempt's stream is still open. keeps_name: for the client of a gateway,
    which may come back."""

    attempt: int
    session: SessionNumber
    keeps_name: bool = False


OpeningEffect = AttemptEffect | OpenProducer | WithdrawOpening | CloseSession


class SessionOpening(OwnerAttempts):
    """The attempts of one producer to get a session."""

    def __init__(self, settings: ProducerSettings, instance_id: InstanceId) -> None:
        """instance_id: 16 bytes, of this producer alone, or of its client at each gateway."""
        super().__init__(settings.open_timeout_ms)
        self._settings = settings
        self._instance_id = instance_id
        self.name = settings.name
        #: None until the first grant, unless it is leased, and when an expired producer may start again
        self.instance: ProducerInstance | None = settings.lease
        #: the owner said UnknownProducer: open by name, presenting the instance
        self.id_unknown = False
        #: it expired with nothing sent: a newer instance that has its name is left alone
        self.expired = False
        #: recorded when the name was first opened, see ProducerOpened; known from the first grant on
        self.growths = settings.growths

    def request(self) -> OpenProducer:
        """What the owner of the present attempt is asked."""
        proven, client = self.instance, self._settings.client
        if client is not None and proven is not None:
            client = client._replace(token=None)
        wanted = OnConflict.REFUSE if self.expired else self._settings.on_conflict
        return OpenProducer(
            self.attempt,
            self.name,
            self._settings.mode,
            on_conflict=wanted if proven is None else OnConflict.FENCE,
            resume=None if self.id_unknown else proven,
            present=proven if self.id_unknown else None,
            owner_epoch=self.owner_epoch,
            instance_id=self._instance_id,
            on_behalf_of=self._settings.on_behalf_of,
            growths=self._settings.growths,
            initial_mark=self._settings.initial_mark,
            client=client,
        )

    def granted(self, event: ProducerGranted) -> None:
        """The grant is accepted: from now on this instance resumes."""
        if self.instance is not None and self.instance.producer_id != event.producer_id:
            raise InvariantViolated("a granted instance must not accept another producer id")
        self.phase = OpeningPhase.GRANTED
        self.name = event.name
        self.instance = ProducerInstance(event.producer_id, event.generation)
        self.growths = event.growths
        self.id_unknown = self.expired = False

    def start_anew(self) -> None:
        """The log has forgotten the instance, which has sent nothing that is pending: the next opening makes a new one.
        An assigned name went with its id, and under it a new id would count as one that the application chose."""
        self.instance, self.id_unknown, self.expired = None, False, True
        self.name = self._settings.name

    def withdraw(self) -> list[WithdrawOpening]:
        """Withdraw the request to the owner, if it is unanswered."""
        return [WithdrawOpening(self.attempt)] if self.phase is OpeningPhase.ASKING else []
