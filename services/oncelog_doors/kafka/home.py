"""What all connections of Kafka's clients share: the cluster, the address that they get, and what is counted."""

from collections import Counter
from typing import Any, Protocol

from oncelog.core.names import NamespaceName
from oncelog_doors.connections.home import ConnectionHome, Drained
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.shared.admissions import Admissions
from oncelog_doors.core.shared.byte_budget import ByteBudget
from oncelog_doors.kafka.asking import Address
from oncelog_doors.kafka.group_expiry import GroupExpiry
from oncelog_doors.kafka.ports import ClusterPort
from oncelog_doors.kafka.producers import Producers

REQUEST_BYTES_MAX = 16 * 1024 * 1024
#: Of requests that are not decided, of all connections and of one.
BYTES_MAX = 256 * 1024 * 1024
CONNECTION_BYTES_MAX = 64 * 1024 * 1024


#: Why a connection is held.
BUDGET = "budget"


class OpenConnection(Drained, Protocol):
    """What is done to a connection from outside."""

    def release(self, reason: str) -> None: ...


class KafkaCounts:
    """Since the start of the door."""

    def __init__(self) -> None:
        #: {API: requests that were answered}
        self.requests: Counter[str] = Counter()
        #: {name of an error code: topics, partitions and requests that got it}
        self.refusals: Counter[str] = Counter()
        #: connections beyond a limit, or from an address that has failed too often
        self.connections_refused = 0
        self.bytes_out = 0
        #: batches that the log cannot know again if the client sends them twice
        self.unnumbered = 0

    def answered(self, api: str, body: Any) -> None:
        """A request got this answer."""
        self.requests[api] += 1
        self._count_refusals(body)

    def _count_refusals(self, body: Any) -> None:
        """Of all the structs of an answer."""
        if code := body.get("error_code", 0):
            self.refusals[ErrorCode(code).name.lower()] += 1
        for value in body.values():
            if isinstance(value, list | tuple):
                for each in value:
                    if isinstance(each, dict):
                        self._count_refusals(each)


class KafkaHome(ConnectionHome[OpenConnection]):
    """namespace: of names without one. advertised: where clients connect to this door; None: the address of this
    machine that a client has connected to. bytes_max: of requests that are not decided. offsets_retention_ms: of groups
    without members; 0: for ever."""

    def __init__(
        self,
        cluster: ClusterPort,
        timers: Timers,
        *,
        namespace: NamespaceName,
        advertised: Address | None = None,
        admissions: Admissions | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        bytes_max: int = BYTES_MAX,
        offsets_retention_ms: int = 0,
    ) -> None:
        super().__init__(timers, admissions)
        self.cluster = cluster
        self.namespace = namespace
        self.advertised = advertised
        self.request_bytes_max = request_bytes_max
        self.producers = Producers(cluster, timers, self.tasks)
        connection_bytes = min(CONNECTION_BYTES_MAX, bytes_max // 4)
        self.budget = ByteBudget(connection_bytes=connection_bytes, process_bytes=bytes_max)
        self.counts = KafkaCounts()
        self.expiry = GroupExpiry(cluster, timers, self.tasks, namespace=namespace, retention_ms=offsets_retention_ms)

    async def before_tasks_end(self) -> None:
        self.expiry.close()

    def refused(self) -> None:
        self.counts.connections_refused += 1

    def bytes_decided(self, connection: int, size: int) -> None:
        """Of requests or batches of a connection, which may be over."""
        for number in self.budget.decided(connection, size):
            if number in self.connections:
                self.connections[number].release(BUDGET)

    def gone(self, number: int) -> None:
        self.budget.gone(number)
        super().gone(number)
