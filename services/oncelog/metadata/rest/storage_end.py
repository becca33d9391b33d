"""The route that gives up what only lost storage nodes have of a ledger. For superusers."""

from typing import Annotated

from fastapi import APIRouter, Query

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import LedgerId
from oncelog.metadata.repair.ledger_end import LedgerEnd
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.storage import LedgerPath
from oncelog.metadata.rest.storage_values import EndedLedger


def routes(coordination: Coordination) -> APIRouter:
    """End a ledger."""
    router = new_router(prefix="/admin/v2/storage", tags=["storage"])

    @router.post(
        "/ledgers/{ledger_id}/end",
        summary="End a ledger without its lost storage nodes",
        operation_id="end_ledger",
    )
    async def end_ledger(
        ledger_id: LedgerPath,
        caller: CallerOfRequest,
        confirm: Annotated[bool, Query(description="true: acknowledged messages may be given up")] = False,
    ) -> EndedLedger:
        """For a topic whose log ends with a ledger that cannot be closed, because too few of its storage nodes are
        registered, or too many of their directories went back in time or are damaged; or whose owner needs entries of a
        closed ledger that are lost. **Messages that were acknowledged may be lost.** The topic goes on within seconds;
        its log then says what was given up, message numbers jump, and every producer must be opened again. The ledger
        may be one of the ack log: then **messages that were acknowledged may be delivered again**.

        `conflict` if the ledger can still be recovered, if no entry of a closed one can be lost, and while the topic is
        served.
        """
        if not confirm:
            raise InvalidArgument(
                "acknowledged messages may be lost: confirm with confirm=true (command line: --yes) that the missing "
                "storage nodes and directories are gone for ever",
                field="confirm",
            )

        async def is_served(topic: TopicRecord) -> bool:
            if topic.owner is None or coordination.owners.is_lost(topic.owner):
                return False
            owner = coordination.owners.find(topic.owner)
            assert owner is not None, "an owner without a session is lost"
            state = await coordination.calls.state(owner, topic.topic_id, internal=False)
            return state is not None and state.phase == "serving"

        command = LedgerEnd(
            coordination.ledgers, coordination.topics, look=coordination.repair.watch.refresh, is_served=is_served,
            events=coordination.events,
        )  # fmt: skip
        record = await command.end(LedgerId(ledger_id), by=caller.role)
        await coordination.copies.after_loss()
        return EndedLedger(ledger_id=ledger_id, gone=list(record.given_up), survivors=list(record.survivors))

    return router
