"""`oncelog mirror status`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import Exit
from oncelog.cli.options import Output, OutputOption, TimeoutOption
from oncelog.cli.running import Interrupt, run_command
from oncelog_effects.cli.mirror.options import Chosen, Clusters, takes_clusters

if TYPE_CHECKING:
    from oncelog_effects.mirror.status import PartitionStatus

_HELP = """Show how far a mirror is, for each topic and partition. Changes nothing, and needs no running mirror.

    oncelog mirror status --from oncelog://a:6650 --to oncelog://b:6650 --topic orders

It needs the right `admin` at both clusters, and `consume` at the source. States:

- copied, copying: nothing waits to be copied, or a mirror copies it.
- rewinding: the target has lost copies, perhaps because it was restored; a mirror copies them again.
- no_mirror, not_mirrored: messages wait, and no mirror is connected.
- gap: the source has deleted messages before they were copied.
- too_large: the next message to be copied is in chunks, which a mirror does not copy.
- unsupported: the next message has a value or headers of a client of Kafka or Pulsar that a mirror does not copy.
- source_behind: the source was restored, and the target has messages that it has forgotten.
- partitions_differ: the numbers of partitions differ.

-o json prints `partitions`: topic, state, message, source_last and copied_to (indexes of the source, -1: none),
lag_messages, lag_s, gap_messages, lost_messages, rewound and opened (how often the subscription went back, and a mirror
has opened its producer, which fences the one before), mirrors (connected ones), active.

Exit codes: 0 if every state is copied, copying or rewinding, and no lag is above --max-lag; 1 otherwise; 2 invalid
usage; 4 cluster unreachable, retry; 70 bug; 130 interrupted."""


@takes_clusters
def status(
    *,
    clusters: Clusters,
    chosen: Chosen,
    max_lag: Annotated[
        float | None,
        typer.Option(
            "--max-lag",
            min=0,
            help="Exit with 1 if a message was published longer ago, in seconds, and is not copied. Default: no limit.",
        ),
    ] = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    choice = chosen.choice()

    async def main(_: Interrupt) -> Exit:
        from oncelog_effects.mirror.status import TROUBLE, status_of

        async with clusters.source(timeout) as source, clusters.target(timeout) as target:
            found = await status_of(source, target, choice, max(1, int(timeout * 1000)))
        if output is Output.JSON:
            print(json.dumps({"partitions": [asdict(each) for each in found]}, indent=2))
        else:
            show(found)
        late = [each for each in found if max_lag is not None and each.lag_s > max_lag]
        return Exit.FAILED if late or any(each.state in TROUBLE for each in found) else Exit.OK

    raise typer.Exit(run_command(main, Console(stderr=True, highlight=False)))


status.__doc__ = _HELP


def show(found: "list[PartitionStatus]") -> None:
    """As a table on standard output, with what is wrong below it."""
    from oncelog.cli.admin.tables import show as show_table
    from oncelog.cli.admin.tables import table_console

    rows: list[object] = [
        {
            "topic": each.topic,
            "state": each.state.value,
            "source_last": each.source_last,
            "copied_to": each.copied_to,
            "lag_messages": each.lag_messages,
            "lag_s": round(each.lag_s, 1),
            "lost_messages": each.lost_messages,
            "rewound": each.rewound,
            "opened": each.opened,
            "mirrors": each.mirrors,
        }
        for each in found
    ]
    show_table(rows, table_console(120))
    for each in found:
        if each.message:
            print(f"{each.topic}: {each.message}")
