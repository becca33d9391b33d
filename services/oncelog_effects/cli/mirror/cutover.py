"""`oncelog mirror cutover`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import Output, OutputOption, TimeoutOption
from oncelog.cli.running import Interrupt, run_command
from oncelog_effects.cli.mirror.options import Chosen, Clusters, takes_clusters

if TYPE_CHECKING:
    from oncelog_effects.mirror.cutover import Cutover

_HELP = f"""Move consumers and producers to the target of a mirror. Stop them at the source first.

\b
  oncelog mirror cutover --from oncelog://a:6650 --to oncelog://b:6650 \\
      --topic orders --producers
  oncelog mirror cutover --from oncelog://a:6650 --to oncelog://b:6650 \\
      --topic orders --producers --forced

As planned: the mirror runs. The command refuses while producers or consumers are connected at the source, waits until
everything is copied, moves the positions of consumers, and says what to do then. It may be repeated. No policy makes
the source refuse messages: if it uses tokens, revoke the right `produce` there.

--forced: the source is lost, and is not asked. Stop the mirrors first, permanently. The command says up to which index
of the source each partition is copied, and after which sequence id each producer has to send again. It reads all copies
for that.

--producers opens the name of each producer at the target with the highest sequence id that is copied. A program that is
started there with the same name continues after it. Messages up to this id are not stored again.

It needs the right `admin` at both clusters, `consume` at the source, `produce` and `consume` at the target. To open
names for other roles, the token of a superuser at the target.

{EXIT_CODES}"""


@takes_clusters
def cutover(
    *,
    clusters: Clusters,
    chosen: Chosen,
    forced: Annotated[bool, typer.Option("--forced", help="The source is lost: do not ask it.")] = False,
    producers: Annotated[
        bool, typer.Option("--producers", help="Open the names of the source's producers at the target.")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds within which everything must be copied. Not with --forced.")
    ] = 60.0,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With --forced: id of the lost cluster, if several were mirrored.")
    ] = None,
    role: Annotated[
        str, typer.Option("--role", help="With --forced: the role that owns the names of producers. Default: yours.")
    ] = "",
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    choice = chosen.choice()
    if (cluster is not None or role) and not forced:
        raise typer.BadParameter("--cluster and --role belong to --forced: otherwise the source says so")

    async def main(_: Interrupt) -> Exit:
        from oncelog_effects.mirror.cutover import cut_over, cut_over_forced

        timeout_ms = max(1, int(timeout * 1000))
        async with clusters.target(timeout) as target:
            if forced:
                done = await cut_over_forced(
                    target, choice, cluster_id=cluster, producers=producers, role=role, timeout_ms=timeout_ms
                )
            else:
                async with clusters.source(timeout) as source:
                    done = await cut_over(
                        source, target, choice, producers=producers, wait_s=wait, timeout_ms=timeout_ms
                    )
        if output is Output.JSON:
            print(json.dumps(asdict(done), indent=2))
        else:
            _show(done, clusters.target_url)
        return Exit.OK

    raise typer.Exit(run_command(main, Console(stderr=True, highlight=False)))


cutover.__doc__ = _HELP


def _show(done: "Cutover", target_url: str) -> None:
    for each in done.partitions:
        print(f"{each.topic}: copied up to index {each.last_index} of the source")
        for name, position in each.subscriptions.items():
            print(f"{each.topic}: subscription {name} goes on at index {position} of the target")
        for name, why in each.left_out.items():
            print(f"{each.topic}: subscription {name} was not moved: {why}")
        for producer in each.producers:
            opened = "its name is at the target with it" if producer.opened else "its name is not at the target"
            print(
                f"{each.topic}: producer {producer.name} sends again what is behind sequence id "
                f"{producer.last_sequence_id}: {opened}"
            )
    if any(producer.assigned for each in done.partitions for producer in each.producers):
        print(
            "Names such as producer-7 were assigned, or belong to leased ids. A lease of the source is unknown at the "
            "target: lease a new id there. A name that was opened there never expires, unless chosenProducerExpiry is "
            "set: delete it with `oncelog admin producers delete` if no program publishes under it."
        )
    print("Now:")
    if done.forced:
        print(f"1. Let no mirror of cluster {done.source} start again.")
    else:
        print("1. Revoke the right produce at the source, if it has tokens: no policy makes it refuse messages.")
        print("   Stop the mirror.")
    print(f"2. Start consumers and producers with --url {target_url}.")
    print("3. Later: `oncelog pipeline audit --compare` lists what the source has and the target does not.")
