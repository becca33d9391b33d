"""`oncelog admin backup create`, `list` and `verify`: copies of ZooKeeper's records."""

import io
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from oncelog.cli.admin.commands import NegativeAnswer, Report, admin_command
from oncelog.cli.admin.rest import AdminApi, Answer, objects
from oncelog.cli.admin.rest_paths import ROOT
from oncelog.cli.admin.waiting import progress, waited
from oncelog.core.errors import Fatal, InvalidArgument, PermissionDenied
from oncelog.metadata_store.copies.copy_file import FILE_BYTES_MAX, CopyReader, RecordCopy, read_copy
from oncelog.metadata_store.copies.copy_folder import keep_in, name_by_content
from oncelog.metadata_store.copies.copy_keys import CopyKey, read_keys
from oncelog.runtime.whole_file import replace_file

_BACKUPS = f"{ROOT}/backups"
_STANDARD_OUTPUT = "-"
#: Paths that `verify` names.
_SHOWN_MAX = 10

KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        envvar="ONCELOG_BACKUP_KEY_FILE",
        exists=True,
        dir_okay=False,
        help="File with the keys of encrypted copies, one a line.",
    ),
]


def add_copies(backup: typer.Typer) -> None:
    """Add the commands to the group."""

    @admin_command(backup, "create", line="Copy ZooKeeper's records now.", in_outage=True)
    def create(
        api: AdminApi,
        to: Annotated[
            str | None,
            typer.Option(
                "--to", metavar="PATH", help="Also write it here: a file, a directory, or - for standard output."
            ),
        ] = None,
        keep: Annotated[
            int | None,
            typer.Option("--keep", min=1, help="Number of copies to keep in the directory of --to. Default: all."),
        ] = None,
        wait_seconds: Annotated[
            int,
            typer.Option(
                "--wait-seconds", min=0, help="How long to wait for a cluster that does not answer, or denies it."
            ),
        ] = 0,
    ) -> Answer:
        """Copy all records of ZooKeeper to storage nodes now, and to a file of your own.

        The elected metadata service does the same each hour, without a file. The copy is made at 2,000 records a
        second: use a longer --timeout for more than 50,000 topics.

            oncelog admin backup create --to /backups --keep 336
        """
        if keep is not None and (to is None or not Path(to).is_dir()):
            raise InvalidArgument("--keep needs the directory of --to", field="keep")
        if to is not None and to.endswith("/") and not Path(to).is_dir():
            raise InvalidArgument(f"there is no directory {to}: create it", field="to")
        # Services that are restarted with the role of this token deny it until then.
        made = waited(wait_seconds, lambda: (True, "", api.post(_BACKUPS)), passing=(PermissionDenied,))
        name = str(made.get("name")) if isinstance(made, dict) else ""
        if to is None:
            return made
        copy = api.download(f"{_BACKUPS}/{name}", name)
        try:
            if to == _STANDARD_OUTPUT:
                sys.stdout.buffer.write(copy)
                sys.stdout.buffer.flush()
                return None
            if Path(to).is_dir():
                written = keep_in(Path(to), name, copy, count_max=keep or sys.maxsize)
            else:
                written = Path(to)
                replace_file(written, copy, secret=True)
        except OSError as error:
            raise Fatal(f"cannot write the copy to {to}: {error.strerror or error}") from error
        return f"copied ZooKeeper's records to {written} ({len(copy)} bytes)"

    @admin_command(backup, "list", line="List the copies on storage nodes.", in_outage=True)
    def list_copies(api: AdminApi) -> Answer | Report:
        """List the copies of ZooKeeper's records that live storage nodes have, the newest first."""
        answer = api.get(_BACKUPS)
        assert isinstance(answer, dict)
        return Report([*objects(answer.get("backups"))] or "there is no copy", answer)

    @admin_command(backup, "verify", line="Check a copy.", in_outage=True)
    def verify(
        api: AdminApi,
        file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The copy.")],
        key_file: KeyFileOption = None,
        against_cluster: Annotated[
            bool, typer.Option("--against-cluster", help="Also make a new copy now, and count what differs.")
        ] = False,
    ) -> Answer:
        """Check that a copy is complete and unchanged, and show its details. Needs no cluster.

        An incomplete, damaged or forged copy is refused. An encrypted copy needs --key-file. If a copy is not
        encrypted, the check finds damage only: anyone who can write the file can forge it.

            oncelog admin backup verify 2026-11-27t06-00-00z-era1-0f3c9a2b.oncelog-copy
        """
        keys = read_keys(key_file)
        if not against_cluster:
            with file.open("rb") as source:
                reader = CopyReader(source, keys, accept_unauthenticated=True)
                for _ in reader.records():
                    pass
            assert reader.manifest is not None, "all records were read"
            return _shown(reader, dict(reader.manifest.records))
        with file.open("rb") as source:
            copy = read_copy(source, keys, accept_unauthenticated=True)
        return _compared(copy, _of_cluster(api, keys))


class OutsideCopy(NamedTuple):
    """A checked file, and the name that it gets on storage nodes."""

    name: str
    file: bytes


def read_outside(path: Path, key_file: Path | None) -> OutsideCopy:
    """The file may be a pipe. Raises InvalidArgument that says why it is refused."""
    try:
        with path.open("rb") as source:
            file = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror or error}", field="FILE") from error
    reader = CopyReader(io.BytesIO(file), read_keys(key_file), accept_unauthenticated=True)
    for _ in reader.records():
        pass
    return OutsideCopy(name_by_content(reader.header, file), file)


def upload(api: AdminApi, copy: OutsideCopy, nodes: list[str]) -> None:
    """Returns when storage nodes have it. nodes: addresses, if they are not found without."""
    answer = api.upload(f"{_BACKUPS}/{copy.name}", copy.file, nodes=nodes)
    stored = answer.get("nodes") if isinstance(answer, dict) else None
    progress(f"stored the copy as {copy.name} on {len(stored) if isinstance(stored, list) else 0} storage nodes")


def _of_cluster(api: AdminApi, keys: tuple[CopyKey, ...]) -> RecordCopy:
    made = api.post(_BACKUPS)
    name = str(made.get("name")) if isinstance(made, dict) else ""
    return read_copy(io.BytesIO(api.download(f"{_BACKUPS}/{name}", name)), keys, accept_unauthenticated=True)


def _shown(of: CopyReader | RecordCopy, records: dict[str, int]) -> dict[str, object]:
    header = of.header
    return {
        "cluster_id": header.cluster_id,
        "era": header.era.number,
        "level": header.level,
        "created_ms": header.created_ms,
        "encryption": f"key {header.key_id}" if header.authenticated else "none: not authenticated",
        "records": dict(records),
    }


def _compared(copy: RecordCopy, now: RecordCopy) -> Answer:
    """Raises NegativeAnswer if the copy is of another cluster."""
    shown: dict[str, object] = _shown(copy, dict(copy.manifest.records))
    if copy.header.cluster_id != now.header.cluster_id:
        shown["against_cluster"] = f"it is a copy of another cluster: this one has the id {now.header.cluster_id}"
        raise NegativeAnswer(shown)
    gone = sorted(copy.records.keys() - now.records.keys())
    new = sorted(now.records.keys() - copy.records.keys())
    both = sorted(copy.records.keys() & now.records.keys())
    changed = [path for path in both if copy.records[path].value != now.records[path].value]
    shown |= {
        "same": len(both) - len(changed),
        "changed_since": _counted(copy, changed),
        "deleted_since": _counted(copy, gone),
        "created_since": _counted(now, new),
        "deleted_paths": gone[:_SHOWN_MAX],
    }
    return shown


def _counted(copy: RecordCopy, some: list[str]) -> dict[str, int]:
    return dict(Counter(copy.records[path].kind for path in some))
