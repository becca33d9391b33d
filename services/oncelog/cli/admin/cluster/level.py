"""`oncelog admin cluster level` and `finalize`: which versions may take part, and the end of an upgrade."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import NegativeAnswer, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer, number
from oncelog.cli.admin.rest_paths import ROOT
from oncelog.core.process_version import PROCESS_VERSION

_LEVEL = f"{ROOT}/cluster/level"
_FINALIZE = f"{ROOT}/cluster/finalize"


def add_level(cluster: typer.Typer) -> None:
    """Add the commands to those of the cluster."""

    @admin_command(cluster, "level")
    def show_level(
        api: AdminApi,
        known: Annotated[
            bool,
            typer.Option("--require-known", help="Exit code 1 if programs of this version may not take part."),
        ] = False,
    ) -> Answer:
        """Show the level of the cluster, and the version that each process knows.

        A process of a version below the level does not start. `finalize` raises the level.
        """
        answer = api.get(_LEVEL)
        needed = max(number(answer.get("level")), number(answer.get("announced"))) if isinstance(answer, dict) else 0
        if known and needed > PROCESS_VERSION:
            reason = f"this program knows level {PROCESS_VERSION}, and the cluster has level {needed}: use a newer one"
            raise NegativeAnswer(answer, reason=reason)
        return answer

    @admin_command(cluster, "finalize")
    def finalize(
        api: AdminApi,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only show what prevents it. Exit code 1 if something does.")
        ] = False,
        yes: YesOption = False,
    ) -> Answer:
        """End an upgrade: raise the level of the cluster to that of its metadata services.

        From then on the cluster may write formats that older versions cannot read. So older versions are refused, and
        you cannot go back to them. The command is refused while a process does not know the level, or while a storage
        node that did not know it is away.
        """
        before = api.get(_LEVEL)
        assert isinstance(before, dict)
        if dry_run:
            if before.get("behind"):
                raise NegativeAnswer(before)
            return before
        level, target = number(before.get("level")), number(before.get("target"))
        if level < target:
            loss = f"raise the level from {level} to {target}: there is no way back to a version below {target}"
            confirm(yes, lambda: loss, typed=str(target))
        return api.post(_FINALIZE)
