"""A process proves that its era has not ended: storage nodes say it. Without that, what a record says, or that there is
none, is no final answer for clients.

    await require_era(calls, nodes, ack_quorum=2)      # after the record was read

Rules
- A restore leaves out fewer storage nodes than an ack quorum, and raises the era of all others before it reads anything
  of them. So if an ack quorum takes a call of this process's era, the era had not ended when the call was made, and
  what was read before was of the cluster (`core.chain.ownership_proof.record_decides`).
- A node of a newer era counts as fenced. It takes nothing of this process any more (hazard
  the-lost-ensemble-returns).
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from oncelog.core.chain.ownership_proof import NO_LEDGER, record_decides
from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable, StaleEra
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.member_status import FenceState
from oncelog.storage_client.node_calls import NodeCalls

#: A live member responds within milliseconds. An owner then reads the topic record.
FENCES_TIMEOUT_MS = 1_000


async def require_era(calls: NodeCalls, nodes: Collection[Incarnation], *, ack_quorum: int) -> None:
    """Return if what was read before this call was of the era in which the cluster was then. nodes: distinct ones that
    are registered. Raises ServiceUnavailable."""
    states: Sequence[FenceState] = ()
    async with aclosing(growing_states(calls, nodes, NO_LEDGER)) as answers:
        async for states in answers:
            if record_decides(states, ack_quorum=ack_quorum):
                return
    current = sum(state is not FenceState.FENCED for state in states)
    raise ServiceUnavailable(
        f"fewer than {ack_quorum} storage nodes respond in the era of this process ({current} of {len(nodes)} that are "
        "registered), so its records may be those of a former ZooKeeper. Start the other storage nodes; clients ask "
        "again"
    )


async def growing_states(
    calls: NodeCalls, nodes: Collection[Incarnation], ledger_id: LedgerId
) -> AsyncGenerator[Sequence[FenceState], None]:
    """Yield all fence states of the ledger so far each time that a node has responded or timed out."""
    states = list[FenceState]()
    asks = [states_of(calls, node, [ledger_id]) for node in nodes]
    async with aclosing(_as_they_come(asks)) as answers:
        async for answer in answers:
            states += answer
            yield states


async def states_of(calls: NodeCalls, member: Incarnation, ledger_ids: Sequence[LedgerId]) -> Sequence[FenceState]:
    """The fence states; empty if the member does not respond."""
    try:
        return await calls.fence_states(member, ledger_ids, timeout_ms=FENCES_TIMEOUT_MS)
    except InvariantViolated:
        raise
    except StaleEra:
        return [FenceState.FENCED] * len(ledger_ids)
    except OncelogError:
        return ()


async def _as_they_come(
    asks: Sequence[Coroutine[Any, Any, Sequence[FenceState]]],
) -> AsyncGenerator[Sequence[FenceState], None]:
    """Yield the results in the order of completion; cancel the rest when closed."""
    waiting = {asyncio.ensure_future(ask) for ask in asks}
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()
