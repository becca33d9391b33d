"""`oncelog pipeline audit`: whole topics held against what the log promises."""

import json
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import Exit
from oncelog.cli.options import (
    DEFAULT_URL,
    Output,
    OutputOption,
    PlaintextTokenOption,
    TlsCaFileOption,
    TokenFileOption,
    UrlOption,
)
from oncelog.cli.pipeline.answers import table_console
from oncelog.cli.pipeline.audit_table import show_report
from oncelog.cli.pipeline.options import (
    ConfOption,
    MasterOption,
    PatternOption,
    TopicsArgument,
    connection_given,
    topics_given,
)
from oncelog.cli.pipeline.progress import TaskProgress
from oncelog.cli.pipeline.running import run_job
from oncelog.core.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.pipeline.source.options import SourceOptions

_TABLE_WIDTH = 120

PictureOption = Annotated[
    Path | None, typer.Option("--picture", dir_okay=False, help="Write a picture of it here: an SVG.")
]
EntriesOption = Annotated[
    int, typer.Option("--entries-per-task", min=1, max=1_000_000, help="Entries that one task reads at most.")
]

CopiesOption = Annotated[
    bool, typer.Option("--all-copies", help="Read each storage node's copy of every entry, and compare them.")
]

_HELP = """Hold whole topics against what the log promises: every entry is read from the storage nodes, in parallel.

    oncelog pipeline audit flights

    oncelog pipeline audit --pattern 'orders-.*' --picture orders.svg -o json

    oncelog pipeline audit flights --all-copies      # every copy on every storage node, three times as much to read

once: each id of a producer is stored once. order: a producer's ids ascend. contiguous: those of a contiguous producer
follow each other without a hole. producers: names, generations, fences and the marks that openings state follow from
the log. base_index: messages are numbered without a hole. digests: each entry can be read, and carries the checksums of
itself and of its batch. copies: every storage node of a closed ledger holds it; with --all-copies each entry has as
many copies as were promised, and all are equal. chain: ledgers are whole, and follow each other without a gap. live
map: the marks that the log gives are those that the topic's owner has. snapshot: they were those of its last snapshot,
at the entry that this is of; it remembers batches where they are, and a log that needs a snapshot has one that can be
read.

A topic is audited up to where it ended when the audit began. What cannot be seen is said, and then the verdict is
incomplete, never good: the beginning of a log that was trimmed, entries that cannot be read, producers that the owner
does not list.

Where the cluster has tokens, it needs one of a superuser: storage nodes serve nobody else. -o json prints: format,
verdict (good, violations, incomplete), began_ms, seconds, and for each of `topics`: topic, topic_id, verdict, end,
first_index, ledgers, ranges, entries, messages, messages_not_deduplicated, bytes, producers, checks (check, state,
violations, held_against), violations_count, violations (rule, position, message), not_seen, notes,
duplicates_refused, takeovers, timeline.

Exit codes: 0 good; 1 violations, or incomplete, or failed; 2 wrong usage; 4 cluster not reached, try again; 70 a bug;
130 interrupted."""


def audit(
    topics: TopicsArgument = None,
    pattern: PatternOption = None,
    picture: PictureOption = None,
    entries_per_task: EntriesOption = 10_000,
    all_copies: CopiesOption = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    errors = Console(stderr=True, highlight=False)

    @cache
    def options() -> "SourceOptions":
        from oncelog.pipeline.source.options import source_options

        if picture is not None and not picture.absolute().parent.is_dir():
            raise InvalidArgument(f"--picture {picture}: there is no such directory", field="picture")
        link = connection_given(url, token_file, tls_ca_file, allow_plaintext_token)
        return source_options(link | topics_given(topics, pattern), {}, streaming=False)

    def work(spark: "SparkSession") -> Exit:
        from oncelog.pipeline.audit.job import audit_topics
        from oncelog.pipeline.audit.picture import picture_of
        from oncelog.pipeline.audit.report import GOOD, report_of

        began_ms, began_s = int(time.time() * 1000), time.monotonic()
        tell = TaskProgress(errors).tell
        audits = audit_topics(spark, options(), entries_max=entries_per_task, tell=tell, all_copies=all_copies)
        report = report_of(audits, began_ms=began_ms, seconds=time.monotonic() - began_s)
        if output is Output.JSON:
            print(json.dumps(report, indent=2))
        else:
            show_report(report, table_console(_TABLE_WIDTH))
        if picture is not None:
            picture.write_text(picture_of(report))
        return Exit.OK if report["verdict"] == GOOD else Exit.FAILED

    raise typer.Exit(run_job("oncelog audit", master, conf, work, check=options))


audit.__doc__ = _HELP
