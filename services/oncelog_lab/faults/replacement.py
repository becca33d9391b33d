"""Before a storage node loses copies: wait until the cluster says that it may be replaced. After: until all are back.

The question goes to REST: `GET /admin/v2/storage/nodes/{incarnation}/may-replace`.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

#: Key in `InjectedFault.detail`: how long the fault waited for permission.
WAITED_S = "waited_s"
#: Key in `InjectedFault.detail`: the incarnation that the node had before the fault.
FORMER = "former"
_NODES = "/admin/v2/storage-nodes"
_MAY_REPLACE = "/admin/v2/storage/nodes/{incarnation}/may-replace"

#: GET of a path of REST: the body; None without a usable answer.
Get = Callable[[str], Awaitable[Any]]


class Replacement:
    """deadline_s: of each wait; copying may take long. Each method raises LabFailed at its deadline."""

    def __init__(self, get: Get, *, deadline_s: float = 900.0, check_every_s: float = 1.0) -> None:
        self._get = get
        self._deadline_s = deadline_s
        self._check_every_s = check_every_s

    async def permitted(self, is_at: Callable[[str], bool]) -> dict[str, str]:
        """Wait until the node at this address may be replaced. Returns details for the injected fault."""
        began_s = time.monotonic()
        reasons: Any = "no answer"

        async def allowed() -> str | None:
            nonlocal reasons
            found = [node["incarnation"] for node in await self._live() if is_at(node["address"])]
            if not found:
                reasons = "it is not registered"
                return None
            answer = await self._get(_MAY_REPLACE.format(incarnation=found[0])) or {}
            reasons = answer.get("reasons", "no answer")
            return str(found[0]) if answer.get("may_replace") else None

        try:
            former = await until(allowed, self._deadline_s, "may-replace", every_s=self._check_every_s)
        except LabFailed as error:
            raise LabFailed(f"the node may not be replaced after {self._deadline_s:.0f} s: {reasons}") from error
        return {WAITED_S: f"{time.monotonic() - began_s:.1f}", FORMER: former}

    async def restored(self, is_at: Callable[[str], bool], *, not_as: str = "") -> None:
        """Wait until a node is registered at this address, and every registered node may be replaced.

        not_as: an incarnation that does not count.
        """
        waiting_for = "a storage node at the address"

        async def whole() -> bool:
            nonlocal waiting_for
            live = await self._live()
            if not any(is_at(node["address"]) and node["incarnation"] != not_as for node in live):
                return False
            for node in live:
                answer = await self._get(_MAY_REPLACE.format(incarnation=node["incarnation"])) or {}
                if not answer.get("may_replace"):
                    waiting_for = f"{node['address']}: {answer.get('reasons', 'no answer')}"
                    return False
            return True

        try:
            await until(whole, self._deadline_s, "all copies", every_s=self._check_every_s)
        except LabFailed as error:
            raise LabFailed(f"not all copies are back after {self._deadline_s:.0f} s: {waiting_for}") from error

    async def _live(self) -> list[dict[str, Any]]:
        return [node for node in await self._get(_NODES) or [] if node["live"]]
