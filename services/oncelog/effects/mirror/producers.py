"""The producers of a topic, as its owner lists them."""

from dataclasses import dataclass
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.core.errors import Conflict
from oncelog.core.names import MIRROR, TopicName
from oncelog.effects.rest import owner_stats


@dataclass(frozen=True, slots=True)
class Producers:
    """Of one log. connected: how many are, also of those that are not listed."""

    topic: str
    listed: list[dict[str, Any]]
    count: int
    connected: int

    def named(self, name: str) -> dict[str, Any] | None:
        """Raises Conflict if the owner lists too few to tell."""
        found = next((each for each in self.listed if each["name"] == name), None)
        if found is None:
            self.require_all()
        return found

    def require_all(self) -> None:
        """Raises Conflict unless all producers are listed."""
        if len(self.listed) < self.count:
            raise Conflict(
                f"{self.topic} has {self.count} producers, and its owner lists {len(self.listed)} of them: how far the "
                "mirror is cannot be told. Let producers expire, or delete those that are not needed"
            )

    def publishing(self) -> tuple[int, list[str]]:
        """How many producers are connected that are no mirrors, and the names of those that are listed."""
        connected = [each["name"] for each in self.listed if each["connected"]]
        own = [name for name in connected if not name.startswith(MIRROR)]
        return self.connected - len(connected) + len(own), own


async def producers_of(client: AsyncClient, part: TopicName, timeout_ms: int | None) -> Producers:
    """Raises TopicNotFound; PermissionDenied without the right `admin`."""
    stats = await owner_stats(client, part, timeout_ms=timeout_ms)
    internal = await owner_stats(client, part, internal=True, timeout_ms=timeout_ms)
    return Producers(str(part), internal["producers"], stats["producer_count"], stats["connected_producer_count"])
