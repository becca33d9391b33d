"""The producers of a history, and what they send."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.ids import Generation, InstanceId, ProducerId, SessionNumber
from tests.contract.owner.reference.model import Place, Verdict, Written


@dataclass(slots=True)
class Program:
    """One producer of a history. name None: it is leased. session None: it is not connected."""

    name: str | None
    contiguous: bool
    instance: ProducerInstance
    instance_id: InstanceId
    session: SessionNumber | None = None

    @property
    def mode(self) -> SequenceMode:
        return SequenceMode.CONTIGUOUS if self.contiguous else SequenceMode.MONOTONIC


@dataclass(slots=True)
class Sent:
    """A batch, and what must be said of it. places: of its messages, when it was sent."""

    session: SessionNumber
    ids: Sequence[int]
    expected: Verdict | list[Verdict]
    places: list[Place | None] = field(default_factory=list)
    written: Written | None = None


STRANGER = Program(None, True, ProducerInstance(ProducerId(1 << 40), Generation(1)), InstanceId(b"stranger" * 2))
