"""Writes the records of a new era below its root, and removes roots that are not needed any more.

Rules
- Every transaction checks the version of the cluster's record, which each claim changes. So a performer whose claim was
  taken over writes nothing more.
- A record is created, never overwritten. What a performer before has written below the root of an era that is not
  committed is removed first: it was joined from other answers.
- After an answer that is not OK the records tell what was applied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from oncelog.core.errors import NotFound, StoreUnavailable
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.new_tree import NewTree
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CheckStep, CreateStep, DeleteStep, Step, StoreSession

T = TypeVar("T")

#: Of one transaction; ZooKeeper's request has at most 1 MiB.
STEPS_MAX = 100
BYTES_MAX = 512 * 1024
_STEP_OVERHEAD_BYTES = 64
#: Nothing is below their records, so it is not looked for.
_FOLDERS_OF_LEAVES = (paths.LEDGERS, paths.TOMBSTONES, paths.STORAGE_COOKIES, paths.STORAGE_ENDS, paths.TOPIC_POLICIES)
#: Of one transaction.
ATTEMPTS_MAX = 5
#: Transactions, or reads, at once.
_CALLS_MAX = 16


class FencedError(Exception):
    """Another performer has claimed the restore."""


class TreeWriter:
    """version: of the cluster's record. session: at the root of the cluster."""

    def __init__(self, session: StoreSession, version: int, *, on_progress: Callable[[int], None]) -> None:
        """on_progress: called with the number of records that are written or removed."""
        self._session = session
        self._version = version
        self._on_progress = on_progress
        self._gate = asyncio.Semaphore(_CALLS_MAX)
        self._done = 0

    async def write(self, root: str, tree: NewTree) -> None:
        """root: of the era. Raises FencedError, StoreUnavailable: it can be repeated."""
        await self._all([[CreateStep(root)]])
        self._done = 0
        for level in tree.by_depth():
            await self._all(batches([CreateStep(root + path, value) for path, value in level.items()]))

    async def remove(self, folder: str, *, root: str) -> None:
        """The node and all below it, whatever is there. root: of its era. Raises FencedError, StoreUnavailable."""
        leaves = {root + each for each in _FOLDERS_OF_LEAVES}
        found: list[str] = []
        todo = [folder]
        while todo:
            found += todo
            names = await self._gather([self._children(path) for path in todo])
            below = {path: [f"{path}/{name}" for name in each] for path, each in zip(todo, names, strict=True)}
            found += [path for parent in leaves & below.keys() for path in below[parent]]
            todo = [path for parent, each in below.items() if parent not in leaves for path in each]
        depths: dict[int, list[str]] = {}
        for path in found:
            depths.setdefault(path.count("/"), []).append(path)
        for depth in sorted(depths, reverse=True):
            # Most records of a root that is removed were never changed; of the others the version is read then.
            await self._all(batches([DeleteStep(path, 0) for path in depths[depth]]))

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._session.children(path)
        except NotFound:
            return []

    async def _gather(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        async def gated(call: Awaitable[T]) -> T:
            async with self._gate:
                return await call

        return await asyncio.gather(*map(gated, calls))

    async def _all(self, transactions: Sequence[Sequence[Step]]) -> None:
        await asyncio.gather(*map(self._transact, transactions))

    async def _transact(self, steps: Sequence[Step]) -> None:
        async with self._gate:
            left, attempts = list(steps), 0
            while left:
                status = await self._session.transact([CheckStep(paths.CLUSTER, self._version), *left])
                if status is WriteStatus.OK:
                    break
                attempts += 1
                node = await self._session.read(paths.CLUSTER)
                if node is None or node.version != self._version:
                    raise FencedError
                left = [step for each in left if (step := await self._unapplied(each)) is not None]
                if attempts == ATTEMPTS_MAX and left:
                    raise StoreUnavailable(f"{left[0].path} and {len(left) - 1} other records could not be written")
        self._done += len(steps)
        self._on_progress(self._done)

    async def _unapplied(self, step: Step) -> Step | None:
        """What is left of it."""
        node = await self._session.read(step.path)
        if isinstance(step, DeleteStep):
            return None if node is None else DeleteStep(step.path, node.version)
        return step if node is None else None


def batches(steps: Sequence[Step]) -> list[list[Step]]:
    """Transactions within the limits of ZooKeeper."""
    found: list[list[Step]] = []
    size = 0
    for step in steps:
        step_bytes = _STEP_OVERHEAD_BYTES + len(step.path) + len(getattr(step, "data", b""))
        size += step_bytes
        if not found or len(found[-1]) == STEPS_MAX or size > BYTES_MAX:
            found.append([])
            size = step_bytes
        found[-1].append(step)
    return found
