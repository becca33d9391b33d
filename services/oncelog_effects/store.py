"""What a store of effects does for a source; `SqlEffects` is one."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from oncelog.client.client import AsyncClient
from oncelog.core.names import TopicName
from oncelog_effects.core.effects.ordered import Source, StoredPosition

ConnectionT_co = TypeVar("ConnectionT_co", covariant=True)


class SourceNames(NamedTuple):
    """For people who look at the store. topic: its full name. cluster_id: where it is; empty: unknown."""

    topic: str
    subscription: str
    cluster_id: str = ""


class ClaimLost(Exception):
    """The row does not have the claim or the position that an apply named: nothing was written."""


class EffectRefused(Exception):
    """The store refuses what the application's function has written, and nothing of it has taken effect: as if the
    function had raised."""


class EffectsStore(Protocol[ConnectionT_co]):
    """ConnectionT_co: what the application's function gets."""

    async def store_id(self) -> str:
        """32 hexadecimal digits, the same for ever. Raises StoreUnavailable, and why the store is of no use."""

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        """In one transaction: lock the row of the source, decide, and write. What `decide` raises ends it, and nothing
        is written. Waits for every transaction of the source that is under way. Raises StoreUnavailable, StoreBusy."""

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[ConnectionT_co], Awaitable[None] | None] | None,
    ) -> None:
        """In one transaction: if the row has the claim, the position and the pending_dead of `claimed`, write the
        position, the last_message and the pending_dead of `following`, run the application's function, and commit.

        run: None: there is no function; a message was given up, or is known to be a dead letter.

        Raises ClaimLost; EffectRefused; EffectMisuse; what `run` raises: after these nothing was written. And
        StoreUnavailable, after which the outcome is unknown.
        """


class ClosingStore(EffectsStore[ConnectionT_co], Protocol[ConnectionT_co]):
    """A store that has something open while its sources run."""

    async def close(self) -> None: ...


@runtime_checkable
class StoreInCluster(Protocol[ConnectionT_co]):
    """What makes a store once there is a client of the cluster whose messages take effect. batch: messages in one
    transaction, unless the application says how many."""

    batch: int

    def check_source(self, topic: TopicName, effect: str) -> None:
        """Raises InvalidArgument if the messages of this topic cannot take effect in this store."""

    def opened(self, client: AsyncClient) -> ClosingStore[ConnectionT_co]: ...
