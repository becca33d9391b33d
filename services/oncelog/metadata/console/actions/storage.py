"""Actions on one storage node. They are for superusers."""

import asyncio
from typing import Any

from oncelog.metadata.console.action import Action, Change
from oncelog.metadata.console.page import View
from oncelog.metadata.console.rest_reading import rest_path

_COPIES = "/admin/v2/storage/nodes/{}/decommission"
_READ_ONLY = "/admin/v2/storage-nodes/{}/read-only"


async def _nodes(view: View) -> dict[str, Any]:
    """may_replace asks each storage node, so it is asked here and on no page that is live."""
    node = view.parts["node"]
    nodes, may_replace = await asyncio.gather(
        view.read_fresh("/admin/v2/storage-nodes"),
        view.read_fresh(rest_path("/admin/v2/storage/nodes/{}/may-replace", node)),
    )
    return {"nodes": nodes, "may_replace": may_replace, "node": node}


def _action(name: str, method: str, form: str, title: str, done: str) -> Action:
    return Action(
        path="/console/storage/nodes/{node}/" + name,
        name=name,
        title=title,
        done=done,
        rights=(),
        template="storage_loss.html",
        collect=_nodes,
        typed=lambda view: view.parts["node"][:8],
        change=lambda view: Change(method, rest_path(form, view.parts["node"])),
        back=lambda view: "/console/storage",
    )


ACTIONS = (
    _action("decommission", "POST", _COPIES, "Decommission the storage node", "The copies of the node are moved away."),
    _action("keep", "DELETE", _COPIES, "Cancel the decommission", "The storage node stays in the cluster."),
    _action("read-only", "PUT", _READ_ONLY, "Make the storage node read-only", "The storage node is read-only."),
    _action("writable", "DELETE", _READ_ONLY, "Make the storage node writable", "The storage node is writable."),
)
