"""`oncelog admin backup restore`, `drill` and `rights`: what is done when ZooKeeper is lost, and what is tried before.

The work is done by a metadata service. These commands begin it, show its progress, and say what to do next.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.admin.backup.copies import KeyFileOption, read_outside, upload
from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer, number, objects
from oncelog.cli.admin.rest_paths import ROOT
from oncelog.cli.admin.waiting import WAIT_S, progress
from oncelog.core.errors import Conflict, NotFound, Retriable, ServiceUnavailable
from oncelog.core.rebuild.restore_plan import FINISHED_ELSEWHERE

_RESTORE = f"{ROOT}/cluster/restore"
_DRILL = f"{ROOT}/cluster/drill"
_RIGHTS = f"{ROOT}/cluster/rights"
#: How long no metadata service may answer: they start again when a restore is claimed.
_SILENT_S = 120.0
_SHOWN_MAX = 20
ANOTHER_HAS_WON = (
    "another restore has won, and made era {era}: nothing of this one is served, and what its options gave up or "
    "accepted was not used. `oncelog admin backup drill` shows what is there now"
)

NodesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--nodes",
        metavar="HOST:PORT",
        help="Ask this storage node, at its gRPC or its health port. Repeat it, or separate several by commas. "
        "Nodes that ZooKeeper, settings or notes of other nodes name are found without it.",
    ),
]


def add_restore(backup: typer.Typer) -> None:
    """Add the commands to the group."""

    @admin_command(backup, "restore", in_outage=True)
    def restore(
        api: AdminApi,
        file: Annotated[
            Path | None,
            typer.Argument(
                metavar="FILE",
                exists=True,
                dir_okay=False,
                help="Also use this copy, which is outside of the cluster. It is checked, and storage nodes keep it, "
                "also with --dry-run.",
            ),
        ] = None,
        key_file: KeyFileOption = None,
        nodes: NodesOption = None,
        absent: Annotated[
            list[str] | None,
            typer.Option(
                metavar="INCARNATION",
                help="Incarnation of a storage node that is permanently lost, or at least 8 unique digits. If then "
                "more nodes are missing than the ack quorum allows, every topic gives up entries that may be lost, "
                "and rights stay closed. Repeatable.",
            ),
        ] = None,
        accept: Annotated[
            list[str] | None,
            typer.Option(
                metavar="TOPIC",
                help="Accept the review of this topic, or of the record with this path; `all`: every review. "
                "Repeatable.",
            ),
        ] = None,
        take_over: Annotated[
            bool,
            typer.Option(
                "--take-over",
                help="Restore even if topic owners of this cluster still answer: they end. It also needs "
                "--ends-era, unless a storage node proves that ZooKeeper is older or has lost records.",
            ),
        ] = False,
        ends_era: Annotated[
            int,
            typer.Option(
                "--ends-era",
                metavar="ERA",
                min=0,
                help="The serving era that --take-over ends. Any other era is refused.",
            ),
        ] = 0,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only read and report. Nothing is raised or written.")
        ] = False,
        yes: YesOption = False,
    ) -> Report:
        """Restore a lost ZooKeeper from the data of storage nodes.

        A metadata service reads the heads of all ledgers, the notes of policies, rights and deletions, and copies of
        the records, and writes all records again, in a new era. Owners, metadata services and records of the former era
        are refused from then on, even if the lost ZooKeeper comes back.

        Begin with `drill` or `--dry-run`. The command waits until the restore ends. Repeat it to resume a restore that
        was interrupted or refused: the restore keeps its id. A repeated command never ends an era that serves: that
        needs --take-over, and the number of the era in --ends-era.

        If the cluster is sound, there is nothing to do, and the command says so.

        The copy in FILE is used in addition to the copies on storage nodes.
        """
        copy = None if file is None else read_outside(file, key_file)
        if not dry_run:
            loss = "begin a new era: all topic owners and metadata services of this cluster start again"
            if take_over:
                loss += ", also if they serve now"
            confirm(yes, lambda: loss, typed="restore")
        body: dict[str, object] = {
            "nodes": [*_split(nodes)], "absent": [*_split(absent)], "accept": list(accept or ()),
            "take_over": take_over, "ends_era": ends_era, "dry_run": dry_run,
        }  # fmt: skip
        if copy is not None:
            upload(api, copy, _split(nodes))
        return _followed(api, _RESTORE, body)

    @admin_command(backup, "drill", in_outage=True)
    def drill(api: AdminApi, nodes: NodesOption = None) -> Report:
        """Show what a restore would lose now. Changes nothing; the cluster keeps running.

        Reads the same data as a restore, and compares the records that a restore would write with those in ZooKeeper.
        Exit code 1 if a topic would need a review, a record would differ, or too few storage nodes answer.
        """
        report = _followed(api, _DRILL, {"nodes": [*_split(nodes)]})
        answer = report.answer
        assert isinstance(answer, dict)
        if answer.get("reviews") or answer.get("differences") or answer.get("without_holder"):
            raise NegativeAnswer(report)
        return report

    @admin_command(backup, "rights", in_outage=True)
    def rights(
        api: AdminApi,
        confirmed: Annotated[
            bool, typer.Option("--confirm", help="Make the closed rights effective, after you have checked them.")
        ] = False,
        yes: YesOption = False,
    ) -> Answer | Report:
        """Show the rights that a restore has closed, and confirm them.

        A restore that asked too few storage nodes may have missed the revocation of a right. Then only superusers have
        rights, until you have checked the list and confirmed it.
        """
        before = api.get(_RIGHTS)
        assert isinstance(before, dict)
        if not confirmed:
            return before
        grants = len(objects(before.get("closed")))
        if grants:
            confirm(yes, lambda: f"make {grants} grant{'s' if grants > 1 else ''} effective again", typed="confirm")
        after = _object(api.post(f"{_RIGHTS}/confirm"))
        opened = [{key: value for key, value in one.items() if key != "now"} for one in objects(after.get("closed"))]
        return Report({"state": after.get("state"), "opened": opened}, dict(after))


def _split(given: list[str] | None) -> list[str]:
    return [each.strip() for one in given or () for each in one.split(",") if each.strip()]


def _followed(api: AdminApi, path: str, body: dict[str, object]) -> Report:
    """Begin the work and follow it to its end. Raises NegativeAnswer if it was refused or failed."""
    before = _object(api.get(path))
    answer = followed = _object(api.post(path, body))
    joined = number(answer.get("joined")) > 0
    line, shown, heard_s = _line(answer), "", time.monotonic()
    while True:
        if line != shown:
            progress(line)
            shown = line
        state = answer.get("state")
        if state == "done":
            return Report(_summary(answer, joined=joined), dict(answer))
        if state in ("refused", "failed"):
            raise NegativeAnswer(Report(_summary(answer, joined=joined), dict(answer)))
        if state == "idle":
            return _forgotten(answer, followed, before)
        followed = answer
        time.sleep(WAIT_S)
        try:
            # A metadata service of a former era starts again and has lost its work, not what the restore has claimed.
            answer = _object(api.post(path, body) if state == "interrupted" else api.get(path))
            line, heard_s = _line(answer), time.monotonic()
        except Conflict:
            answer = _object(api.get(path))
            line = _line(answer)
        except (Retriable, NotFound) as error:
            if time.monotonic() - heard_s > _SILENT_S:
                raise
            line = f"{error.message}; will retry"


def _forgotten(answer: dict[str, object], followed: dict[str, object], before: dict[str, object]) -> Report:
    """The metadata service that did the work has ended. The cluster tells whether the era was committed: it is the one
    that was followed, or there is another one than before. Raises ServiceUnavailable."""
    committed = answer.get("restore_id")
    claimed = bool(followed.get("era")) and committed == followed.get("restore_id")
    # A small cluster is restored within one pause: then its claim was never seen.
    is_new = before.get("state") in ("idle", "done") and bool(committed) and committed != before.get("restore_id")
    if is_new and not claimed and followed.get("restore_id") not in (None, "", before.get("restore_id")):
        lost = {**followed, "state": "refused", "message": ANOTHER_HAS_WON.format(era=answer.get("era"))}
        raise NegativeAnswer(Report(_summary(lost), lost))
    if claimed or is_new:
        done = {
            **followed, "era": answer.get("era"), "restore_id": committed, "state": "done", "step": "done",
            "message": "" if number(followed.get("records")) else FINISHED_ELSEWHERE,
        }  # fmt: skip
        return Report(_summary(done), done)
    raise ServiceUnavailable("the metadata service that did this has ended before anything was claimed: repeat it")


def _object(answer: Answer) -> dict[str, object]:
    return answer if isinstance(answer, dict) else {}


def _line(answer: dict[str, object]) -> str:
    era, step = number(answer.get("era")), answer.get("step")
    parts = [f"{step}" if not era else f"era {era}: {step}"]
    if number(answer.get("topics")):
        parts.append(f"{number(answer.get('topics')):,} topics, {number(answer.get('ledgers')):,} ledgers")
    if number(answer.get("records")):
        parts.append(f"{number(answer.get('records_written')):,} of {number(answer.get('records')):,} records")
    return ", ".join(parts)


def _summary(answer: dict[str, object], *, joined: bool = False) -> str:
    """For people. joined: another command has begun the work."""
    nodes = objects(answer.get("nodes"))
    used = sum(node.get("state") == "used" for node in nodes)
    is_look = answer.get("dry_run") and answer.get("state") == "done"
    era = f", era {answer['era']}" if answer.get("era") else ""
    lines = [f"state    {answer.get('state')}{era}" + (", and nothing was written" if is_look else "")]
    if joined:
        began = datetime.fromtimestamp(number(answer.get("started_ms")) / 1000, UTC)
        lines.append(
            f"begun    by another command, of {answer.get('by')}, at {began:%H:%M:%S} UTC: this one has followed it"
        )
    if nodes:
        silent = "".join(f"; {_node(node)}" for node in nodes if node.get("state") != "used")
        lines.append(f"nodes    {used} used{silent}")
    counts = {name: number(answer.get(name)) for name in ("topics", "ledgers", "deleted_topics")}
    # A restore that ended before it had read everything has found nothing out.
    if is_look or number(answer.get("records")) or any(counts.values()):
        found = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()]
        lines.append(f"found    {', '.join(found)}")
    if answer.get("copies"):
        lines.append(f"copies   {', '.join(map(str, _list(answer.get('copies'))))}")
    if answer.get("gives_up"):
        lines.append("given up every topic may have lost what only the missing storage nodes had")
    if number(answer.get("without_holder")):
        lines.append(f"missing  {number(answer.get('without_holder')):,} entries that no asked storage node gives")
    if answer.get("rights_closed"):
        closed = "closed after a restore" if is_look else "closed"
        lines.append(f"rights   {closed} until `oncelog admin backup rights --confirm`")
    reviews = objects(answer.get("reviews"))
    lines += [f"review   {one.get('topic')}: {one.get('reason')}: {one.get('message')}" for one in reviews[:_SHOWN_MAX]]
    lines += [f"warning  {each}" for each in _list(answer.get("warnings"))[:_SHOWN_MAX]]
    lines += [f"differs  {each}" for each in _list(answer.get("differences"))[:_SHOWN_MAX]]
    cut = max(len(_list(answer.get(name))) for name in ("reviews", "warnings", "differences")) - _SHOWN_MAX
    if cut > 0:
        lines.append(f"and {cut} more: use -o json")
    if answer.get("message"):
        lines.append(f"\n{answer['message']}")
    return "\n".join(lines)


def _node(node: dict[str, object]) -> str:
    name = node.get("node") or node.get("address")
    return f"{name} {node.get('state')}" + (f" ({node['reason']})" if node.get("reason") else "")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
