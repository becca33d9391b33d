"""`oncelog admin ledger`: end a ledger whose storage nodes are lost."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer, objects
from oncelog.cli.admin.rest_paths import ROOT

LedgerArgument = Annotated[
    int, typer.Argument(metavar="LEDGER", help="Id of the ledger, from `waiting` of `topics stats`.", min=0)
]

ledger = typer.Typer(help="End a ledger whose storage nodes are lost.", no_args_is_help=True)


@admin_command(ledger, "end")
def end_ledger(api: AdminApi, ledger_id: LedgerArgument, yes: YesOption = False) -> Answer:
    """End an open ledger that cannot be closed, or give up the lost entries of a closed one that hold up its topic.

    Acknowledged messages may be lost; if the ledger holds acknowledgements of subscriptions, their messages may be
    delivered again. The topic continues within seconds, and its log records what was given up. Asks first: confirm only
    if the missing storage nodes, or the newest state of their directories, are permanently lost.
    """
    confirm(yes, lambda: _loss(api, ledger_id), typed=str(ledger_id))
    answer = api.post(f"{ROOT}/storage/ledgers/{ledger_id}/end", confirm=True)
    assert isinstance(answer, dict)
    gone, survivors = answer["gone"], answer["survivors"]
    assert isinstance(gone, list)
    assert isinstance(survivors, list)
    kept = ", ".join(map(str, survivors)) or "no storage node: all of it is given up"
    given_up = ", ".join(map(str, gone)) or "the entries that are lost"
    return f"ledger {ledger_id} goes on with what is left on {kept}; given up: {given_up}"


def _loss(api: AdminApi, ledger_id: int) -> str:
    ledger = api.get(f"{ROOT}/storage/ledgers/{ledger_id}")
    assert isinstance(ledger, dict)
    copies = objects(ledger.get("copies"))
    missing = ", ".join(str(each["incarnation"]) for each in copies if each.get("state") != "live") or "none"
    return (
        f"give up what only missing storage nodes have of ledger {ledger_id} of topic {ledger.get('topic')}: "
        f"acknowledged messages may be lost (missing nodes: {missing})"
    )
