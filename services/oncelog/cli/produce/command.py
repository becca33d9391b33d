"""`oncelog produce`: its options, its run and its summary."""

import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import (
    DEFAULT_URL,
    Output,
    OutputOption,
    PlaintextTokenOption,
    TimeoutOption,
    TlsCaFileOption,
    TokenFileOption,
    UrlOption,
)
from oncelog.cli.produce.progress import ProgressKind, progress_view
from oncelog.cli.running import Interrupt, run_command

if TYPE_CHECKING:
    from oncelog.cli.produce.line_file import IncompleteLine, LineBlock, LineFile
    from oncelog.cli.produce.publishing import Publishing, RunProgress


class UnverifiedChoice(StrEnum):
    ACCEPT = "accept"
    RAISE = "raise"


class ConflictChoice(StrEnum):
    FENCE = "fence"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Job:
    """What one run was asked for. path None: standard input. replay_lines None: the whole file."""

    topic: str
    path: Path | None
    final: bool
    producer_name: str | None
    rate: float | None
    replay_lines: int | None
    on_conflict: ConflictChoice
    on_unverified: UnverifiedChoice
    url: str
    token_file: Path | None
    tls_ca_file: Path | None
    allow_plaintext_token: bool
    timeout_s: float
    progress: ProgressKind
    output: Output


_HELP = f"""Publish lines: each line of a file, or of standard input, is one message.

With --from-file the byte offset of a line is its sequence id. Run the same command again after anything at all (Ctrl-C,
a crash, kill -9, a lost network): it goes on after the last line that is stored, nothing is lost and nothing is stored
twice. The newline is not part of the message; a carriage return is; an empty line is an empty message.

A last line without a newline may still be written to. It stays unpublished until its newline is there; the run says so
and ends with 0. --final publishes it: say it only of a file that does not grow any more, for what is added to a line
that is published is lost.

With --stdin ids are given automatically: what you pipe in again is stored again, for standard input has no place to
come back to. Save it to a file and use --from-file where that matters. The end of standard input is final: what stands
after the last newline is published as a line.

While the cluster is away, it waits and tries again for as long as it takes. Ctrl-C stops reading, waits for what is on
the way and says how far it is; a second Ctrl-C ends at once.

    oncelog produce flights --from-file flights.csv --producer-name importer

    oncelog produce flights --from-file flights.csv --producer-name importer --rate 5000

    oncelog produce flights --from-file flights.csv --producer-name importer --final

    tail -F app.log | oncelog produce logs --stdin

-o json prints at the end: lines (acknowledged in this run), sent, stored, duplicates (acknowledged, stored before),
unverified (duplicates for which it is unknown whether they are stored: their ids are older than everything that the
log remembers of the producer name), resumed_from (byte offset, null for a first run), position (everything before it is
stored), incomplete (null, or offset and bytes of a last line without a newline that was not published), seconds,
interrupted.

{EXIT_CODES}"""


def produce(
    topic: Annotated[str, typer.Argument(help="A name, or tenant/namespace/name.")],
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="The file to publish.", exists=True, dir_okay=False)
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Publish standard input instead.")] = False,
    final: Annotated[
        bool, typer.Option("--final", help="The file will not grow: its last line is published without a newline, too.")
    ] = False,
    producer_name: Annotated[
        str | None, typer.Option(help="Who publishes: one name for one file, on every run.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Lines a second; by default as fast as it goes.")
    ] = None,
    replay: Annotated[
        int, typer.Option(min=0, help="Send so many lines again that are stored already: duplicates, to be refused.")
    ] = 0,
    from_start: Annotated[bool, typer.Option("--from-start", help="Send the whole file again.")] = False,
    on_conflict: Annotated[
        ConflictChoice, typer.Option(help="While another instance has the name: take it over, or refuse.")
    ] = ConflictChoice.FENCE,
    on_unverified: Annotated[
        UnverifiedChoice,
        typer.Option(
            help="At a line whose id is older than all that the log remembers of the name, so that it was not stored "
            "now and may never have been: accept and tell, or raise an error."
        ),
    ] = UnverifiedChoice.ACCEPT,
    progress: Annotated[
        ProgressKind, typer.Option(help="auto: a bar on a terminal; json: one line for each list acknowledged.")
    ] = ProgressKind.AUTO,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    if stdin == (from_file is not None):
        raise typer.BadParameter("give one of --from-file FILE and --stdin")
    if from_file is not None and producer_name is None:
        raise typer.BadParameter("--from-file needs --producer-name: under this name the run is resumed")
    if stdin and (replay or from_start):
        raise typer.BadParameter("standard input cannot be replayed: --replay and --from-start need --from-file")
    if stdin and final:
        raise typer.BadParameter("--final is said of a file: the end of standard input is final in any case")
    job = Job(
        topic,
        from_file,
        final,
        producer_name,
        rate,
        None if from_start else replay,
        on_conflict,
        on_unverified,
        url,
        token_file,
        tls_ca_file,
        allow_plaintext_token,
        timeout,
        progress,
        output,
    )
    errors = Console(stderr=True, highlight=False)
    raise typer.Exit(run_command(lambda interrupt: _produce(job, interrupt, errors), errors))


produce.__doc__ = _HELP


async def _produce(job: Job, interrupt: Interrupt, errors: Console) -> Exit:
    from oncelog.cli.produce.line_file import LineFile
    from oncelog.cli.produce.publishing import Publishing
    from oncelog.cli.produce.stdin_lines import lines_of_descriptor
    from oncelog.client.client import connect

    with ExitStack() as stack:
        file = None if job.path is None else stack.enter_context(LineFile(job.path, final=job.final))
        view = progress_view(job.progress, None if file is None else file.size_bytes, errors)
        stack.callback(view.ended)
        async with await connect(
            job.url,
            token=job.token_file,
            tls_ca_file=job.tls_ca_file,
            allow_plaintext_token=job.allow_plaintext_token,
            operation_timeout=job.timeout_s,
        ) as client:
            producer = await client.create_producer(
                job.topic,
                producer_name=job.producer_name,
                on_conflict=job.on_conflict.value,
                on_unverified=job.on_unverified.value,
            )
            last = producer.last_sequence_id
            start = -1 if file is None else _start(file, last, job.replay_lines)
            if file is None:
                _say(errors, "standard input: ids are automatic, a replay would be stored again")
            view.opened(producer.producer_name, last, start)
            publishing = Publishing(producer, view, job.rate, start)
            interrupt.first = publishing.stop
            began = time.monotonic()
            lines = lines_of_descriptor(0) if file is None else _blocks(file.blocks(start))
            try:
                await publishing.run(lines)
                await producer.close()
            finally:
                view.ended()
                seconds = time.monotonic() - began
                resumed_from = None if file is None or (start <= 0 and last < 0) else start
                _summarise(job, publishing, resumed_from, None if file is None else file.incomplete, seconds, errors)
    return Exit.INTERRUPTED if publishing.stopped else Exit.OK


def _start(file: "LineFile", last_sequence_id: int, replay_lines: int | None) -> int:
    """Where to begin: after the last stored line, or as many lines before that as are to be sent again."""
    if last_sequence_id < 0 or replay_lines is None:
        return 0
    return file.before(file.after(last_sequence_id), replay_lines)


async def _blocks(blocks: "Iterable[LineBlock]") -> "AsyncIterator[LineBlock]":
    for block in blocks:
        yield block


def _summarise(
    job: Job,
    publishing: "Publishing",
    resumed_from: int | None,
    incomplete: "IncompleteLine | None",
    seconds: float,
    errors: Console,
) -> None:
    """The end of every run, also of one that failed: what is stored, what is not, and how to go on."""
    progress = publishing.progress
    if job.output is Output.JSON:
        facts = {
            "lines": progress.acked,
            "sent": progress.sent,
            "stored": progress.stored,
            "duplicates": progress.duplicates,
            "unverified": progress.unverified,
            "resumed_from": resumed_from,
            "position": None if job.path is None else progress.offset,
            "incomplete": incomplete and {"offset": incomplete.offset, "bytes": incomplete.size_bytes},
            "seconds": round(seconds, 3),
            "interrupted": publishing.stopped,
        }
        print(json.dumps(facts), file=sys.stdout, flush=True)
    else:
        print(_sentences(progress, resumed_from, seconds), file=sys.stdout, flush=True)
    if progress.unverified:
        _say(
            errors,
            f"{progress.unverified:,} lines were not stored now, and whether they ever were is not known: their ids "
            "are older than all that the log remembers of this producer name; lines that are new are lost under it",
        )
    if incomplete is not None:
        _say(
            errors,
            f"the last line is incomplete and was not published: {incomplete.size_bytes:,} bytes without a newline at "
            f"byte {incomplete.offset:,}; run the same command again when the line is written, or with --final if the "
            "file will not grow",
        )
    if publishing.stopped or progress.acked < progress.sent:
        place = f", everything before byte {progress.offset}" if job.path is not None else ""
        again = "; run the same command again to go on" if publishing.stopped and job.path is not None else ""
        _say(errors, f"stopped: {progress.acked:,} lines are acknowledged{place}{again}")


def _say(errors: Console, sentence: str) -> None:
    errors.print(sentence, markup=False, soft_wrap=True)


def _sentences(progress: "RunProgress", resumed_from: int | None, seconds: float) -> str:
    rate = progress.acked / max(seconds, 0.001)
    resumed = "" if resumed_from is None else f", went on at byte {resumed_from:,}"
    return (
        f"{progress.acked:,} lines acknowledged in {seconds:.1f} s ({rate:,.0f}/s): "
        f"{progress.stored:,} stored, {progress.duplicates:,} duplicates refused{resumed}"
    )
