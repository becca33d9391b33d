"""Calls about the notes of one storage node. Each is one attempt with a timeout, and raises OncelogError."""

from collections.abc import AsyncGenerator, Sequence

from oncelog.core.formats.note import Note, NotesDigest, NotesDigests
from oncelog.core.ids import Incarnation
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import NOTES_MAX, PUT_NOTES, READ_NOTES, note_of, note_to_wire
from oncelog.storage_client.node_calls import CALL_TIMEOUT_MS, require_ok
from oncelog.wire import recovery_pb2 as pb

#: Of the notes of one call: a request has at most 1 MiB.
CALL_BYTES_MAX = 768 * 1024
_NOTE_OVERHEAD_BYTES = 64
#: Of one answer: a slow disk must give each of them in time.
_PAGE_NOTES = 1024


async def put_notes(
    channel: Channel, member: Incarnation, notes: Sequence[Note], *, timeout_ms: int = CALL_TIMEOUT_MS
) -> None:
    """Return when the node has synced the notes, or higher ones of their paths. timeout_ms: of one call of several."""
    for some in _calls_of(notes):
        request = pb.PutNotesRequest(target=member, notes=map(note_to_wire, some))
        answer = await channel.call(PUT_NOTES, request, timeout_ms=timeout_ms)
        require_ok(member, answer.status)


async def read_notes(
    channel: Channel, member: Incarnation, *, timeout_ms: int = CALL_TIMEOUT_MS
) -> AsyncGenerator[Note, None]:
    """All notes of the node by ascending path, also those of deletions."""
    request = pb.ReadNotesRequest(target=member, notes_max=_PAGE_NOTES)
    while True:
        answer = await channel.call(READ_NOTES, request, timeout_ms=timeout_ms)
        require_ok(member, answer.status)
        for sent in answer.notes:
            yield note_of(sent)
        if not answer.more:
            return
        if not answer.notes:
            continue  # the next ones could not be read, and the node has forgotten them
        request.after_path = answer.notes[-1].path


async def notes_digests(channel: Channel, member: Incarnation, *, timeout_ms: int = CALL_TIMEOUT_MS) -> NotesDigests:
    answer = await channel.call(READ_NOTES, pb.ReadNotesRequest(target=member), timeout_ms=timeout_ms)
    require_ok(member, answer.status)
    deletions = NotesDigest(answer.deletions, answer.deletions_digest) if answer.HasField("deletions") else None
    return NotesDigests(NotesDigest(answer.count, answer.digest), deletions)


def _calls_of(notes: Sequence[Note]) -> list[list[Note]]:
    calls: list[list[Note]] = []
    size = 0
    for note in notes:
        note_bytes = _NOTE_OVERHEAD_BYTES + len(note.path) + len(note.value)
        size += note_bytes
        if not calls or len(calls[-1]) == NOTES_MAX or size > CALL_BYTES_MAX:
            calls.append([])
            size = note_bytes
        calls[-1].append(note)
    return calls
