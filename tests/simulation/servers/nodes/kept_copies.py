"""The copies of ZooKeeper's records that simulated storage nodes keep, and which of them a restore uses.

A copy counts as kept, and is read by every restore, if one of the storage nodes that the restore has asked takes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.core.era import Era
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, CopyManifest, RecordCopy
from tests.simulation.servers.nodes.inventories import CLUSTER_ID


@dataclass(slots=True)
class KeptCopies:
    """Of one cluster, for all its restores. owed_below: the first ledger of the newest era whose restore was beyond the
    bound; 0: none was. given_up: the nodes that such restores gave up."""

    copies: dict[str, RecordCopy] = field(default_factory=dict)
    owed_below: LedgerId = LedgerId(0)
    given_up: dict[Incarnation, None] = field(default_factory=dict)

    def add(self, era: Era, records: Mapping[str, bytes], now_ms: int, *, claim: int | None = None) -> None:
        """By the paths of the product. claim: the version with which a restore has claimed what it writes; None: the
        cluster serves with these records."""
        versions = (0, 0) if claim is None else (claim, -1)
        kept = {path: CopiedRecord(path, value, *versions) for path, value in records.items()}
        header, manifest = CopyHeader(CLUSTER_ID, era, 0, now_ms), CopyManifest(0, 0, {})
        self.copies[f"{len(self.copies)}"] = RecordCopy(header, manifest, kept)
