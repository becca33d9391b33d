"""`oncelog admin storage`: storage nodes, ledgers and their repair."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from oncelog.cli.admin.commands import NegativeAnswer, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import ROOT, read_only_path, storage_node
from oncelog.cli.admin.waiting import progress, waited
from oncelog.core.errors import NotFound
from oncelog.core.names import check_part, parse_topic

_ROOT = f"{ROOT}/storage"
#: Ledgers of one page.
PAGE = 500
_INCARNATION_PREFIX = re.compile(r"[0-9a-f]{1,32}")

NODE_HELP = "incarnation, a unique prefix of it, or the host that the node advertises."
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help=f"Storage node: {NODE_HELP}")]
NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help=f"Storage nodes, each by its {NODE_HELP}")]
EveryNodeOption = Annotated[bool, typer.Option("--all", help="Also list retired storage nodes.")]
WaitSecondsOption = Annotated[int, typer.Option("--wait-seconds", help="Longest time to wait, in seconds.", min=1)]
LedgerArgument = Annotated[int, typer.Argument(metavar="LEDGER", help="Id of a ledger, from the list.", min=0)]


class LedgerHealth(StrEnum):
    """States by which ledgers can be listed."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    LOST = "lost"
    FROZEN = "frozen"


HealthOption = Annotated[
    LedgerHealth | None, typer.Option("--state", help="List only ledgers in this state. Default: all ledgers.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="List only the ledgers of this topic.")]
LimitOption = Annotated[int, typer.Option("--limit", help="Maximum number of ledgers to list.", min=1)]

storage = typer.Typer(help="Show storage nodes and ledgers, and repair them.", no_args_is_help=True)


@admin_command(storage, "nodes")
def list_nodes(
    api: AdminApi,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Show one storage node: its incarnation, or a unique prefix of it."),
    ] = None,
    every: EveryNodeOption = False,
) -> Answer:
    """List the storage nodes with their copies, damage and debt, or show one.

    Retired nodes are listed while a ledger names them, and with --all. -o wide shows the free space of their disks.
    """
    if node is not None:
        return api.get(f"{ROOT}/storage-nodes/{storage_node(api, node)}")
    return api.get(f"{_ROOT}/nodes", all=every or None)


@admin_command(storage, "read-only")
def set_read_only(
    api: AdminApi,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Storage node: its incarnation, or a unique prefix of it.")
    ],
    clear: Annotated[bool, typer.Option("--clear", help="Make the node writable again.")] = False,
) -> Answer:
    """Make a storage node read-only: new ledgers store nothing on it, and its entries are still read.

    If fewer other nodes are live and writable than a ledger has copies, new ledgers still list it as a member, and
    repair makes that copy after the ledger has ended. Persists until cleared.
    """
    found = storage_node(api, node)
    if clear:
        api.delete(read_only_path(found))
        return f"storage node {found} is writable"
    api.put(read_only_path(found))
    return f"storage node {found} is read-only"


@admin_command(storage, "ledgers")
def list_ledgers(
    api: AdminApi,
    ledger: Annotated[
        int | None, typer.Argument(metavar="LEDGER", help="Id of one ledger, to show its copies.", min=0)
    ] = None,
    state: HealthOption = None,
    topic: TopicOption = None,
    limit: LimitOption = 1_000,
) -> Answer:
    """List ledgers with the state of their copies, or show one ledger."""
    if ledger is not None:
        return api.get(f"{_ROOT}/ledgers/{ledger}")
    return _ledgers(api, limit, state=state.value if state else None, topic=str(parse_topic(topic)) if topic else None)


@admin_command(storage, "repair")
def show_repair(
    api: AdminApi,
    ledger: Annotated[
        int | None, typer.Argument(metavar="LEDGER", help="Id of a ledger to repair now, before others.", min=0)
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until the ledger, or every ledger, has all copies. Progress goes to standard error."
        ),
    ] = False,
    wait_seconds: WaitSecondsOption = 3_600,
) -> Answer:
    """Show the progress of repair, or repair one ledger now. Exit code 1 if --wait ends before the repair does."""
    if ledger is not None:
        api.post(f"{_ROOT}/repair/{ledger}")
        if not wait:
            return f"ledger {ledger} is repaired next"
        return waited(wait_seconds, lambda: _ledger_progress(api, ledger))
    if wait:
        return waited(wait_seconds, lambda: _repair_progress(api))
    return api.get(f"{_ROOT}/repair")


@admin_command(storage, "verify")
def verify(api: AdminApi, ledger: LedgerArgument) -> Answer:
    """Let every storage node of a ledger read its copy back from its disk, and compare the copies.

    Exit code 1 if a copy lacks an entry, or copies differ.
    """
    total: dict[str, object] | None = None
    first = 0
    while True:
        page = api.post(f"{_ROOT}/ledgers/{ledger}/verify", first_entry=first)
        assert isinstance(page, dict)
        total = page if total is None else _added(total, page)
        if page["done"]:
            break
        first = number(page["next_entry"])
        progress(f"ledger {ledger}: {first} of {number(page['last_entry']) + 1} entries verified")
    if total["differing_entry"] is not None or not all(map(_is_complete, objects(total["copies"]))):
        raise NegativeAnswer(total)
    return total


@admin_command(storage, "decommission")
def decommission(
    api: AdminApi,
    nodes: NodesArgument,
    cancel: Annotated[bool, typer.Option("--cancel", help="Keep the nodes, if they are not removed yet.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the nodes are removed. Progress goes to standard error.")
    ] = False,
    wait_seconds: WaitSecondsOption = 3_600,
) -> Answer:
    """Move all copies off storage nodes, then remove the nodes permanently. Their directories are refused from then on.

    May be repeated. A host without a storage node is skipped. Exit code 1 if --wait ends before the nodes are removed:
    then the command says what it waits for. --cancel keeps nodes that are not removed yet, and opens them to new
    entries again.
    """
    chosen = [node for typed in nodes for node in _nodes_at(api, typed)]
    for node in chosen:
        path = f"{_node_path(node)}/decommission"
        if cancel:
            api.delete(path)
        else:
            api.post(path)
    names = ", ".join(chosen) or "no storage node"
    if cancel:
        return f"{names}: stays in the cluster"
    if wait:
        try:
            waited(wait_seconds, lambda: _drain_progress(api, chosen))
        except NegativeAnswer as error:
            _explain_drain(objects(error.answer))
            raise
        return f"{names}: removed from the cluster"
    return f"{names}: draining; `oncelog admin storage nodes` shows when it is removed"


@admin_command(storage, "may-replace")
def may_replace(api: AdminApi, node: NodeArgument) -> Answer:
    """Check whether the disk of a storage node may be replaced now. The exit code is 0 only if it may."""
    found = _nodes_at(api, node)
    if not found:
        raise NotFound(f"no storage node is registered under {node}: oncelog admin storage nodes lists them")
    answers = [api.get(f"{_node_path(each)}/may-replace") for each in found]
    refused = [each for each in answers if not isinstance(each, dict) or each.get("may_replace") is not True]
    if refused:
        raise NegativeAnswer(refused[0])
    return answers[0]


def _node_path(node: str) -> str:
    return f"{_ROOT}/nodes/{quote(node, safe='')}"


def _nodes_at(api: AdminApi, typed: str) -> list[str]:
    """The storage nodes that a user means: one by its incarnation or a prefix of it, or those of a host that are not
    replaced or removed yet. Raises InvalidName, InvalidArgument.
    """
    if _INCARNATION_PREFIX.fullmatch(typed):
        return [storage_node(api, typed)]
    check_part(typed, field="node")
    listed = objects(api.get(f"{_ROOT}/nodes"))
    here = [each for each in listed if str(each["address"]).rpartition(":")[0].strip("[]") == typed]
    found = [str(each["incarnation"]) for each in here if each["state"] not in ("retired", "removed")]
    if not found:
        progress(f"{typed}: no storage node has this host")
    return found


# --- pages, progress --------------------------------------------------------------------------------------------------


def _ledgers(api: AdminApi, limit: int, **query: str | None) -> Answer:
    """All pages, up to `limit` ledgers."""
    found: list[object] = []
    after: int | None = None
    while len(found) < limit:
        page = api.get(f"{_ROOT}/ledgers", after=after, limit=min(PAGE, limit - len(found)), **query)
        assert isinstance(page, dict)
        found += objects(page["ledgers"])
        if page["next_after"] is None:
            break
        after = number(page["next_after"])
    return found


def _ledger_progress(api: AdminApi, ledger: int) -> tuple[bool, str, Answer]:
    answer = api.get(f"{_ROOT}/ledgers/{ledger}")
    assert isinstance(answer, dict)
    progress = f"ledger {ledger}: {answer['health']}"
    repair = api.get(f"{_ROOT}/repair")
    assert isinstance(repair, dict)
    for running in objects(repair["running"]):
        if running.get("ledger_id") == ledger:
            progress += f", {running['step']}, {running['entries_done']} of {running['entries_total']} entries"
    return answer["whole"] is True and answer["health"] == "ok", progress, answer


def _drain_progress(api: AdminApi, nodes: Sequence[str]) -> tuple[bool, str, Answer]:
    listed = [each for each in objects(api.get(f"{_ROOT}/nodes")) if each["incarnation"] in nodes]
    left = [each for each in listed if each["state"] != "removed"]
    ledgers = sum(number(each["ledgers"]) for each in left)
    answer: list[object] = list(listed)
    line = f"{len(left)} of {len(nodes)} storage nodes draining, {ledgers} copies of ledgers to move"
    waits = [reason for each in left for reason in _drain_waits(each)]
    if waits and not ledgers:
        line += f"; waiting for {'; '.join(waits)}"
    return not left, line, answer


def _drain_waits(node: Mapping[str, object]) -> list[str]:
    """What the removal of a node waits for; an older metadata service does not say it."""
    found = node.get("waits_for")
    return [str(reason) for reason in found] if isinstance(found, list) else []


def _explain_drain(nodes: Sequence[Mapping[str, object]]) -> None:
    """What the nodes that were not removed in time wait for, and how to keep them."""
    for node in nodes:
        for reason in _drain_waits(node):
            progress(f"{node['address']} waits for {reason}")
    progress("the nodes go on draining: repeat the command to wait on, or keep them with --cancel")


def _repair_progress(api: AdminApi) -> tuple[bool, str, Answer]:
    answer = api.get(f"{_ROOT}/repair")
    assert isinstance(answer, dict)
    left = number(answer["under_replicated_ledgers"])
    running = len(objects(answer["running"]))
    progress = f"{left} ledgers under-replicated, {running} being repaired, {answer['repaired_ledgers']} repaired"
    return left == 0 and answer["status"] == "idle", progress, answer


def _added(total: Mapping[str, object], page: Mapping[str, object]) -> dict[str, object]:
    """The sums of two adjacent parts of a verification."""
    parts = {str(copy["incarnation"]): dict(copy) for copy in objects(total["copies"])}
    for copy in objects(page["copies"]):
        former = parts.get(str(copy["incarnation"]), {})
        parts[str(copy["incarnation"])] = {
            **copy,
            **{name: number(former.get(name)) + number(copy[name]) for name in ("sound", "missing", "unreadable")},
            "answered": former.get("answered", True) is True and copy["answered"] is True,
            "erased": former.get("erased", False) is True or copy["erased"] is True,
        }
    differing = page["differing_entry"] if total["differing_entry"] is None else total["differing_entry"]
    return {
        **page,
        "first_entry": total["first_entry"],
        "differing_entry": differing,
        "copies": list(parts.values()),
    }


def _is_complete(copy: Mapping[str, object]) -> bool:
    return copy["answered"] is True and not copy["erased"] and not copy["missing"] and not copy["unreadable"]
