"""What a restore would change: the records that it would write now, compared with those in ZooKeeper.

A cluster that is in use changes while both are read. So what differs is read again, and only what differs twice in the
same way is told.
"""

import asyncio
from collections.abc import Iterator, Mapping

from oncelog.core.errors import CorruptEntry
from oncelog.core.rebuild.difference import difference
from oncelog.core.rebuild.result import Rebuilt
from oncelog.metadata.restoring.new_tree import NewTree
from oncelog.metadata.restoring.noted_records import copied_records, names_in, noted_names
from oncelog.metadata_store.copies.record_walk import RecordWalk
from oncelog.metadata_store.records.registry import without_debt
from oncelog.metadata_store.records.topic_store import NameRecord
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession

#: Folders and records of which notes have each record as it is.
_NOTED = (paths.POLICIES, paths.TOMBSTONES, paths.STORAGE_COOKIES, paths.KEY_DATASET)


async def live_records(session: StoreSession) -> dict[str, bytes]:
    """{path: value} of all lasting records. session: below the root of the era. Raises StoreUnavailable."""
    walk = RecordWalk(session, now_s=asyncio.get_running_loop().time)
    records: dict[str, bytes] = {}
    async for group in walk.records(None):
        records |= {each.path: each.value for each in group}
    return records


def differences(rebuilt: Rebuilt, tree: NewTree, live: Mapping[str, bytes]) -> list[str]:
    """tree: what would be written. In a fixed order. A record in ZooKeeper that cannot be read is a difference."""
    unreadable: dict[str, str] = {}
    there_named, records = names_in(live, unreadable), copied_records(live, unreadable)
    found = [f"{path}: it cannot be read in ZooKeeper: {why}" for path, why in sorted(unreadable.items())]
    found += [
        f"{one.name or one.topic_id}: {one.message}" for one in difference(rebuilt, records, noted_names(there_named))
    ]
    found += _partitions(names_in(tree.records, {}), there_named)
    for place in _NOTED:
        there, written = _at(place, live), _at(place, tree.records)
        for path in sorted({*written, *there}):
            if path not in written:
                found.append(f"{path}: no storage node has noted it, so it would be missing")
            elif path not in there:
                if path not in paths.FOLDERS:
                    found.append(f"{path}: it would return; it is not there")
            elif written[path] != _as_noted(path, there[path]):
                found.append(f"{path}: it would be another one")
    return found


def _partitions(written: Mapping[str, NameRecord], there: Mapping[str, NameRecord]) -> Iterator[str]:
    """Numbers of partitions that would be others, so that keys of producers went elsewhere. By full names."""
    for name in sorted({*written, *there}):
        ours, theirs = (each[name].partitions if name in each else 0 for each in (written, there))
        if ours != theirs:
            yield f"{name}: it would have {ours} partitions; it has {theirs}"


def _as_noted(path: str, value: bytes) -> bytes:
    """Without what changes before it is noted."""
    if not path.startswith(f"{paths.STORAGE_COOKIES}/"):
        return value
    try:
        return without_debt(value)
    except CorruptEntry:
        return value  # so it differs


def _at(place: str, records: Mapping[str, bytes]) -> dict[str, bytes]:
    """This record, and those below; of a folder itself nothing."""
    return {
        path: value
        for path, value in records.items()
        if path.startswith(f"{place}/") or (path == place and path not in paths.FOLDERS)
    }
