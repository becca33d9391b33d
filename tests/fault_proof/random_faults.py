"""Injects the planned faults into a cluster under load, one after the other, and checks the log at the end of a round.

    round: producers and a reader begin on a new topic -> faults -> all nodes serve -> producers end
        -> every acknowledged message is read once, in order -> the oracles of `oncelog.verify` find nothing
        -> every entry has all its copies again

Each fault begins when every process serves and the producers are answered. A fault that destroys copies begins when the
cluster says that the node may be replaced.
"""

import contextlib
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import oncelog
from oncelog_lab.faults.bit_rot import flip_bits
from tests.cluster.cluster_fixture import START_S
from tests.cluster.kills import any_time
from tests.cluster.loads import Loads, passed
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.fault_proof.audit import violations_of
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.interposed_disk import DiskRule
from tests.fault_proof.plan import DESTRUCTIVE, FaultKind, PlannedFault
from tests.fault_proof.stored_copies import CopiesReader, StoredCopies, until_whole

#: A timeout of adds that a pause exceeds, and sessions that end where a fault ends them. Small ledgers and segments, so
#: that faults meet them at each step of their lives.
SETTINGS = {
    "session_timeout_ms": SESSION_TIMEOUT_MS,
    "add_timeout_ms": 1_500,
    "ledger_entries_max": 200,
    "segment_bytes": 1 << 18,
    "collect_interval_ms": 1_000,
    "repair_interval_ms": 500,
    "notes_interval_ms": 1_000,
    "repair_absent_delay_ms": 5_000,
}
#: A node may be away, and return, several times in this time.
DEADLINE_S = 180.0
#: A rule that no step matches in this time is withdrawn: the node rolled no segment.
_RULE_DEADLINE_S = 20.0

Tell = Callable[[str], None]


@dataclass(slots=True)
class RoundResult:
    """faults: those that were carried out. copies: at the end of the round."""

    topic: str
    faults: list[PlannedFault] = field(default_factory=list)
    messages: int = 0
    seconds: float = 0.0
    gap_max_s: float = 0.0
    copies: StoredCopies = field(default_factory=StoredCopies)


class RandomFaults:
    """One run on one cluster."""

    def __init__(self, cluster: FaultyCluster, client: oncelog.AsyncClient, tell: Tell) -> None:
        self._cluster = cluster
        self._client = client
        self._tell = tell

    async def round(
        self, topic: str, faults: Iterable[PlannedFault], *, ends_at_s: float = float("inf")
    ) -> RoundResult:
        """Inject the faults until there are no more, or the time is over. Raises AssertionError if a check fails."""
        began_s = time.monotonic()
        result = RoundResult(topic)
        async with Loads.checked(self._client, topic, slow=True, read=True) as loads:
            for fault in faults:
                await self._inject(fault, loads)
                result.faults.append(fault)
                if time.monotonic() > ends_at_s:
                    break
        result.messages, result.gap_max_s = len(loads.stored), loads.gap_max_s
        result.copies = await self._checked_copies(topic)
        result.seconds = time.monotonic() - began_s
        return result

    async def _checked_copies(self, topic: str) -> StoredCopies:
        async with CopiesReader.connected(self._cluster) as reader:
            found = await until_whole(reader.read, DEADLINE_S)
        assert await violations_of(self._cluster, [topic]) == []
        return found

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _inject(self, fault: PlannedFault, loads: Loads) -> None:
        began_s = time.monotonic()
        node = self._cluster.storage_names[fault.node]
        if fault.kind in DESTRUCTIVE:
            await may_replace(self._cluster, node)
        for role in fault.also:
            await self._kill_one(role, fault.seed)
        took_effect = await self._carry_out(fault, node)
        await self._cluster.healed()
        answered = [len(load.message_ids) for load in loads.loads]
        await until(
            lambda: all(len(load.message_ids) > n for load, n in zip(loads.loads, answered, strict=True)),
            DEADLINE_S,
            waiting_for=f"an answer after {fault.text()}",
        )
        seconds = time.monotonic() - began_s
        self._tell(f"{fault.text()}{'' if took_effect else ', the step was not reached'}: {seconds:.1f} s")

    async def _carry_out(self, fault: PlannedFault, node: str) -> bool:
        """Returns whether it took effect."""
        cluster = self._cluster
        lost = 0 if fault.seed % 2 else fault.seed
        await cluster.has_id(node)  # the fault before this one may have ended it a moment ago
        match fault.kind:
            case FaultKind.KILL:
                await cluster.kill(node, once=any_time)
            case FaultKind.PAUSE:
                with contextlib.suppress(ProcessLookupError), cluster.stopped(node):
                    ends_at_s = time.monotonic() + fault.hold_s
                    if fault.ends_session:
                        await cluster.expire(node)
                    await passed(ends_at_s)
                    return True
                return False
            case FaultKind.POWER_CUT:
                await cluster.cut_power(node, seed=lost, once=any_time)
            case FaultKind.POWER_CUT_OF_ALL:
                await cluster.cut_power(*cluster.storage_names, seed=lost, once=any_time)
            case FaultKind.NO_DESCRIPTORS:
                with _without_descriptors(int(cluster.processes[node]["pid"])):
                    await passed(time.monotonic() + fault.hold_s)
            case FaultKind.FLIPPED_BITS:
                with cluster.held():
                    await cluster.kill(node, once=any_time)
                    flip_bits(cluster.data / node / "segments", fault.seed)
            case FaultKind.WIPED_DIRECTORY:
                with cluster.held():
                    await cluster.kill(node, once=any_time)
                    await cluster.expire(node)
                    cluster.wipe(node)
            case FaultKind.KILL_AT_STEP | FaultKind.DISK_ERROR | FaultKind.FULL_DISK:
                return await self._obey_rule(fault, node)
        return True

    async def _obey_rule(self, fault: PlannedFault, node: str) -> bool:
        cluster, lasts = self._cluster, fault.kind is FaultKind.FULL_DISK
        rule = DiskRule(
            fault.name, fault.step, error=fault.error, kill=fault.kill, skip=fault.skip, once=not lasts
        )  # fmt: skip
        cluster.order(node, rule)
        ends_at_s = time.monotonic() + _RULE_DEADLINE_S
        await until(lambda: cluster.has_used(node, rule.name) or time.monotonic() > ends_at_s, DEADLINE_S)
        if lasts:
            await passed(time.monotonic() + fault.hold_s)
        cluster.order(node)
        return cluster.has_used(node, rule.name)

    async def _kill_one(self, role: str, seed: int) -> None:
        names = sorted(name for name, process in self._cluster.processes.items() if process["role"] == role)
        await self._cluster.kill_and_expire(names[seed % len(names)], once=any_time)


async def may_replace(cluster: FaultyCluster, node: str) -> None:
    """Return once the cluster says that the directory of this node may be replaced."""

    async def yes() -> bool:
        path = f"/admin/v2/storage/nodes/{cluster.serving(node, 'incarnation')}/may-replace"
        answer = await cluster.request("GET", path)
        return answer.status_code == 200 and bool(answer.json()["may_replace"])

    await until(yes, START_S, every_s=0.2, waiting_for=f"{node} to be replaceable")


@contextlib.contextmanager
def _without_descriptors(pid: int) -> Iterator[None]:
    """Inside the block the process cannot open another file or connection."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max((int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()), default=0) + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(used, soft), hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
