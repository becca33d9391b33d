"""What a simulated consumer needs of its world: with a given log and chain, or in the whole cluster."""

from typing import TYPE_CHECKING, Protocol

from oncelog.core.delivery.limits import AckStateCheck
from oncelog.core.sdk.consumer.events import OwnerRequest
from tests.simulation.consuming.chain import MessageLog, TopicRecord
from tests.simulation.network import Network
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.consuming.outboxes import ConsumerStream


class OwnerEnd(Protocol):
    """The owner's end of a consumer's stream."""

    @property
    def process(self) -> Process: ...

    def request(self, stream: "ConsumerStream", request: OwnerRequest) -> None: ...

    def stream_broken(self, stream: "ConsumerStream") -> None: ...


class ConsumerParts(Protocol):
    """What is shared with other processes."""

    @property
    def world(self) -> World: ...

    @property
    def network(self) -> Network: ...

    @property
    def log(self) -> MessageLog: ...

    @property
    def record(self) -> TopicRecord: ...

    @property
    def ack_limit(self) -> AckStateCheck: ...
