"""What REST tells of a topic while faults happen: who owns it, and how long the phases of each takeover took."""

import asyncio
from typing import Any

from oncelog.lab.chaos.access import Rest
from oncelog.lab.chaos.report_lines import Say

_LOOK_EVERY_S = 0.5


async def watch_topic(rest: Rest, topic: str, say: Say) -> None:
    """Say each change, until cancelled. A cluster that does not answer is asked again: faults are meant to happen."""
    known_epoch = said_epoch = 0
    while True:
        answer = await rest.call("GET", f"/admin/v2/persistent/{topic}/stats")
        if answer.ok and isinstance(answer.body, dict):
            stats: dict[str, Any] = answer.body
            epoch = int(stats.get("owner_epoch") or 0)
            if epoch > known_epoch and stats.get("owner_address"):
                known_epoch = epoch
                say("route", topic=topic, address=stats["owner_address"], owner_epoch=epoch)
            for takeover in stats.get("takeovers") or []:
                if int(takeover["owner_epoch"]) > said_epoch:
                    said_epoch = int(takeover["owner_epoch"])
                    say("takeover", topic=topic, **takeover)
        await asyncio.sleep(_LOOK_EVERY_S)
