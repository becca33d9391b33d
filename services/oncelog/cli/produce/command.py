"""`oncelog produce`: options, execution and summary."""

import json
import os
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

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import (
    CompressionChoice,
    CompressionOption,
    Output,
    OutputOption,
    PropertyOption,
    TimeoutOption,
    properties_in,
)
from oncelog.cli.produce.progress import ProgressKind, progress_view
from oncelog.cli.running import Interrupt, run_command
from oncelog.core.counted import counted

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
    """The arguments of one run. path None: `messages`, or, if there are none, standard input. replay_lines None: replay
    the whole file."""

    topic: str
    path: Path | None
    messages: list[str]
    final: bool
    producer_name: str | None
    rate: float | None
    replay_lines: int | None
    on_conflict: ConflictChoice
    on_unverified: UnverifiedChoice
    compression: CompressionChoice | None
    connection: Connection
    timeout_s: float
    progress: ProgressKind
    output: Output
    key: str | None
    properties: list[str]


_HELP = f"""Publish lines: each line of a file, or of standard input, is one message. Or publish the texts of -m.

\b
  oncelog produce flights --from-file flights.csv --producer-name importer
  tail -F app.log | oncelog produce logs --stdin
  oncelog produce greetings -m hello --key table-4 --property source=till

With --from-file the byte offset of a line is its sequence id. After any interruption (Ctrl-C, a crash, kill -9) run the
same command again: it continues after the last stored line, so that no line is lost or stored twice. The newline is not
part of a message; a carriage return is. A last line without a newline may be incomplete: it is reported, and published
only with --final. Text that is appended to it later is lost.

If you repeat --stdin or -m, lines and texts are stored again, because nothing can be replayed: save the input to a file
instead. Bytes after the last newline of standard input are a line.

A cluster that does not answer at the start ends the command after --timeout with exit code 4. Later it retries without
a limit. Ctrl-C waits for pending messages; a second one does not. `oncelog help json` has the fields of -o json.

{EXIT_CODES}"""


@takes_connection
def produce(
    topic: Annotated[str, typer.Argument(help="Topic: name, or tenant/namespace/name.")],
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="File to publish.", exists=True, dir_okay=False)
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Publish standard input.")] = False,
    message: Annotated[
        list[str] | None, typer.Option("-m", "--message", metavar="TEXT", help="Publish this text. Repeatable.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Key of each message.")] = None,
    properties: PropertyOption = None,
    final: Annotated[
        bool,
        typer.Option(
            "--final",
            help="Publish the last line also without a newline.",
        ),
    ] = False,
    producer_name: Annotated[str | None, typer.Option(help="Stable name: the same in each run of a file.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Maximum lines per second.")] = None,
    replay: Annotated[
        int,
        typer.Option(min=0, help="First send N stored lines again. They are refused as duplicates."),
    ] = 0,
    from_start: Annotated[bool, typer.Option("--from-start", help="Send the whole file again.")] = False,
    on_conflict: Annotated[
        ConflictChoice,
        typer.Option(help="If another instance uses the name: fence it, or refuse to start."),
    ] = ConflictChoice.FENCE,
    on_unverified: Annotated[
        UnverifiedChoice,
        typer.Option(
            help="If a line's id is older than what the log remembers of the name: accept and report it, or raise an "
            "error."
        ),
    ] = UnverifiedChoice.ACCEPT,
    compression: CompressionOption = None,
    progress: Annotated[
        ProgressKind,
        typer.Option(help="auto: a bar on a terminal. json: a line per acknowledged batch."),
    ] = ProgressKind.AUTO,
    *,
    connection: Connection,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    if [stdin, from_file is not None, bool(message)].count(True) != 1:
        raise typer.BadParameter("use one of --from-file FILE, --stdin and -m TEXT")
    if from_file is not None and producer_name is None:
        raise typer.BadParameter("--from-file needs --producer-name, to resume the next run")
    if from_file is None and (replay or from_start):
        raise typer.BadParameter("--replay and --from-start need --from-file: nothing else can be replayed")
    if from_file is None and final:
        raise typer.BadParameter("--final needs --from-file: only a file can grow")
    job = Job(
        topic,
        from_file,
        message or [],
        final,
        producer_name,
        rate,
        None if from_start else replay,
        on_conflict,
        on_unverified,
        compression,
        connection,
        timeout,
        progress,
        output,
        key,
        properties or [],
    )
    errors = Console(stderr=True, highlight=False)
    raise typer.Exit(run_command(lambda interrupt: _produce(job, interrupt, errors), errors))


produce.__doc__ = _HELP


async def _produce(job: Job, interrupt: Interrupt, errors: Console) -> Exit:
    from oncelog.cli.produce.line_file import LineBlock, LineFile
    from oncelog.cli.produce.publishing import Labelled, Publishing
    from oncelog.cli.produce.stdin_lines import lines_of_descriptor
    from oncelog.cli.read.told import WaitingHint, is_missing, tell_created

    properties = properties_in(job.properties)
    with ExitStack() as stack:
        file = None if job.path is None else stack.enter_context(LineFile(job.path, final=job.final))
        view = progress_view(job.progress, None if file is None else file.size_bytes, errors)
        stack.callback(view.ended)
        waiting = WaitingHint(errors, f"acknowledgements of {job.topic}")
        stack.callback(waiting.ends)
        waiting.begins()
        async with await job.connection.connect(job.timeout_s) as client:
            missing = await is_missing(client, job.topic, job.timeout_s)
            producer = await client.create_producer(
                job.topic,
                producer_name=job.producer_name,
                on_conflict=job.on_conflict.value,
                on_unverified=job.on_unverified.value,
                on_content_differs="accept",
                compression=None if job.compression is None else job.compression.value,
            )
            waiting.ends()
            if missing:
                tell_created(errors, job.topic, produces=True)
            last = producer.resume_sequence_id
            start = -1 if file is None else _start(file, last, job.replay_lines)
            if file is None and not job.messages:
                _say(errors, "reading standard input: sequence ids are automatic, so a replay would be stored again")
            view.opened(producer.producer_name, last, start)
            labelled = Labelled(producer, job.key, properties)
            publishing = Publishing(labelled, view, job.rate, start, waiting)
            interrupt.first = publishing.stop
            began = time.monotonic()
            if file is not None:
                lines = _blocks(file.blocks(start))
            elif job.messages:
                lines = _blocks([LineBlock([os.fsencode(text) for text in job.messages], None, -1)])
            else:
                lines = lines_of_descriptor(0)
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
    """The byte offset to start at: after the last stored line, or `replay_lines` lines before that."""
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
    """Print the summary of a run, also of a failed one: what is stored, what is not, and how to continue."""
    progress = publishing.progress
    if job.output is Output.JSON:
        facts = {
            "lines": progress.acked,
            "sent": progress.sent,
            "stored": progress.stored,
            "duplicates": progress.duplicates,
            "unverified": progress.unverified,
            "differing": progress.differing,
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
            f"not stored by this run, and perhaps never: {counted(progress.unverified, 'line')} with ids that are "
            "older than all batches that the log remembers for this producer name; publish new lines under another "
            "name",
        )
    if progress.differing:
        _say(
            errors,
            f"not stored: {counted(progress.differing, 'line')} in batches that differ from what the log stores under "
            "their byte offsets; the stored lines stay. If the file was replaced or changed, publish it under another "
            "producer name",
        )
    if incomplete is not None:
        _say(
            errors,
            f"the last line is incomplete and was not published: {incomplete.size_bytes:,} bytes without a newline at "
            f"byte {incomplete.offset:,}; run the same command again when the line is complete, or with --final if "
            "the file will not grow",
        )
    if publishing.stopped or progress.acked < progress.sent:
        place = f", up to byte {progress.offset}" if job.path is not None else ""
        again = "; run the same command again to continue" if publishing.stopped and job.path is not None else ""
        _say(errors, f"stopped: {counted(progress.acked, 'line')} acknowledged{place}{again}")


def _say(errors: Console, sentence: str) -> None:
    errors.print(sentence, markup=False, soft_wrap=True)


def _sentences(progress: "RunProgress", resumed_from: int | None, seconds: float) -> str:
    rate = progress.acked / max(seconds, 0.001)
    resumed = "" if resumed_from is None else f", resumed at byte {resumed_from:,}"
    return (
        f"{counted(progress.acked, 'line')} acknowledged in {seconds:.1f} s ({rate:,.0f}/s): "
        f"{progress.stored:,} stored, {counted(progress.duplicates, 'duplicate')} refused{resumed}"
    )
