"""`oncelog admin backup rebuild`: one record in ZooKeeper that cannot be read."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi
from oncelog.cli.admin.rest_paths import ROOT


def add_records(backup: typer.Typer) -> None:
    """Add the command to the group."""

    @admin_command(backup, "rebuild", in_outage=True)
    def rebuild(
        api: AdminApi,
        path: Annotated[str, typer.Argument(metavar="PATH", help="/topics/ID, /ledgers/ID, /names/TENANT/NS/TOPIC, …")],
        accept: Annotated[
            bool, typer.Option("--accept", help="Write the record even if something about it cannot be proved.")
        ] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
        yes: YesOption = False,
    ) -> Report:
        """Rebuild one record in ZooKeeper that is missing or cannot be read.

        The new record comes from the data of storage nodes: a topic, its cursor or a ledger from the heads of ledgers;
        a name, policies, rights or a storage node from notes. A counter gets a value above all assigned ids. A topic
        continues under its next owner, in a higher epoch. If the starts of a storage node are rebuilt, the node
        compares its ledgers with those of other nodes. A record that can be read is not changed.

        PATH is below the root of the cluster's era in ZooKeeper. If the cluster has many ledgers, use a longer
        --timeout.
        """
        if not dry_run:
            confirm(yes, lambda: f"write {path} anew from storage nodes", typed="rebuild")
        answer = api.post(f"{ROOT}/cluster/records/rebuild", {"path": path, "accept": accept, "dry_run": dry_run})
        assert isinstance(answer, dict)
        report = Report(_shown(answer), answer)
        if answer.get("unreadable") or (answer.get("reviews") and not answer.get("written")):
            raise NegativeAnswer(report)
        return report


def _shown(answer: dict[str, object]) -> str:
    """For people."""
    done = "written" if answer.get("written") else "would be written"
    lines = [f"fault    {answer.get('fault')}"]
    records, reviews = answer.get("records"), answer.get("reviews")
    lines += [f"{done}  {path}" for path in (records if isinstance(records, dict) else {})]
    if answer.get("owner_epoch"):
        lines.append(f"epoch    {answer['owner_epoch']}; the topic has no owner until it is used")
    for review in reviews if isinstance(reviews, list) else []:
        lines.append(f"review   {review.get('topic')}: {review.get('reason')}: {review.get('message')}")
    unreadable = answer.get("unreadable")
    lines += [f"next     rebuild {path}, too" for path in (unreadable if isinstance(unreadable, list) else [])]
    return "\n".join(lines)
