"""The doors of a cluster, the clients of Pulsar in front of them, and what must hold when their run has ended.

    places     a receipt that names a place names the entry that holds exactly this batch
    last id    a producer that came back was told an id that is stored, or -1
    units      a unit is stored as a whole, once; no message of an input is in two of them
    no loss    an input that some application has receipts for is in the log as a whole

What is stored once and in order, `check_appends` says: clients keep the history of their topic as others do.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from oncelog.core.ids import TopicId
from oncelog.verify.violation import Violation
from tests.oracles.fold import LogFold
from tests.simulation.clients.producer_client import ClientParts
from tests.simulation.doors.door import DoorServer
from tests.simulation.doors.entries import DoorShape, Packing, PulsarInput
from tests.simulation.doors.pulsar_client import PulsarClient, Told

if TYPE_CHECKING:
    from tests.simulation.world import Process


class Doors:
    """Of one topic."""

    def __init__(self, parts: ClientParts, topic_id: TopicId, shape: DoorShape) -> None:
        self.topic_id = topic_id
        self.servers = [
            DoorServer(parts, f"door{n}", shape.pending_bytes_max, shape.budget_bytes) for n in range(shape.doors)
        ]
        self.inputs = shape.inputs
        self.told = Told()
        self.clients: list[PulsarClient] = []
        for source in shape.inputs:
            for family in source.families:
                name = f"pulsar{len(self.clients)}"
                self.clients.append(PulsarClient(parts, name, topic_id, source, family, self.servers, self.told))

    @property
    def processes(self) -> "list[Process]":
        return [*self.servers, *self.clients]

    @property
    def unfinished(self) -> list[str]:
        """The programs that have not ended in order."""
        return [client.name for client in self.clients if not client.finished]

    def state_line(self) -> str:
        servers = "".join("+" if n.alive and not n.paused else "z" if n.alive else "-" for n in self.servers)
        return f"{servers} {', '.join(client.state_line() for client in self.clients)}"

    def check(self, fold: LogFold) -> None:
        """fold: of the whole log. Raises Violation."""
        for receipt in self.told.receipts:
            entry = None if receipt.place is None else fold.entries.get(receipt.place)
            if receipt.place is None:
                continue
            batch = None if entry is None else entry.batch
            stored = None if batch is None else (batch.first, batch.last, batch.count)
            if entry is None or stored != receipt.batch.borders or entry.header.skip_first:
                raise Violation(
                    "places", f"the receipt for {receipt.batch.borders} names {receipt.place}, with {stored}"
                )
        for instance, last in self.told.reopenings:
            producer = fold.producer(instance.producer_id)
            if last >= 0 and (producer is None or last not in producer.places):
                raise Violation("last id", f"{instance} came back and was told {last}, which is not stored")
        for source in self.inputs:
            if source.packing is not Packing.PLAIN:
                self._check_units(source, fold)
            elif source.complete:
                self._check_complete(source, source.ids, [*fold.names[source.name].places])

    def _check_units(self, source: PulsarInput, fold: LogFold) -> None:
        producer = fold.names.get(source.name)
        if producer is None:
            return
        ids: list[int] = []
        for number, places in producer.places.items():
            unit = self.told.units.get(places[0].value)
            ids += [number] if unit is None else unit.ids
        if len(ids) != len(dict.fromkeys(ids)):
            raise Violation("units", f"messages of {source.name!r} are in two units: {sorted(ids)}")
        pid = producer.producer_id
        # Without a place a unit is confirmed that is older than what the log remembers: nothing is said of it.
        told = (
            each.batch.ids for each in self.told.receipts if each.instance.producer_id == pid and each.place is not None
        )
        # What was refused of encrypted messages, and lies below later ones, is told to be lost.
        whole = source.complete and source.packing is Packing.KEYED
        self._check_complete(source, source.ids if whole else list(chain(*told)), ids)

    @staticmethod
    def _check_complete(source: PulsarInput, acknowledged: Sequence[int], stored: Sequence[int]) -> None:
        missing = sorted(set(acknowledged) - set(stored))
        if missing:
            raise Violation("no loss", f"of the input of {source.name!r} the log lacks {missing[:5]}")
