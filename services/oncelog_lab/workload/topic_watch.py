"""Watches a topic over REST while faults happen: its owner, and the phases of each takeover."""

import asyncio
from typing import Any

from oncelog_lab.access import RestClient
from oncelog_lab.workload.events import Emit

_CHECK_EVERY_S = 0.5


async def watch_topic(rest: RestClient, topic: str, emit: Emit) -> None:
    """Emit each change, until cancelled. A cluster that does not answer is asked again: faults are expected."""
    owner_epoch = takeover_epoch = 0
    while True:
        answer = await rest.call("GET", f"/admin/v2/persistent/{topic}/stats")
        if answer.ok and isinstance(answer.body, dict):
            stats: dict[str, Any] = answer.body
            epoch = int(stats.get("owner_epoch") or 0)
            if epoch > owner_epoch and stats.get("owner_address"):
                owner_epoch = epoch
                emit("route", topic=topic, address=stats["owner_address"], owner_epoch=epoch)
            for takeover in stats.get("takeovers") or []:
                if int(takeover["owner_epoch"]) > takeover_epoch:
                    takeover_epoch = int(takeover["owner_epoch"])
                    emit("takeover", topic=topic, **takeover)
        await asyncio.sleep(_CHECK_EVERY_S)
