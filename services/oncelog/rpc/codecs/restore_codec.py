"""Messages of the StorageRecovery service; recovery.proto describes the fields. The generated messages are used as they
are, because these calls are few."""

from oncelog.core.formats.note import Note, NoteOrder
from oncelog.rpc.methods import unary_of
from oncelog.wire import recovery_pb2 as pb

#: Limits of one call.
INVENTORY_LEDGERS_MAX = 4096
NOTES_MAX = 4096
#: A request has at most 1 MiB in all.
COPY_PART_BYTES_MAX = 768 * 1024
_SERVICE = "/oncelog.wire.v1.StorageRecovery"

RAISE_ERA = unary_of(f"{_SERVICE}/RaiseEra", pb.RaiseEraRequest, pb.RaiseEraAnswer)
INVENTORY = unary_of(f"{_SERVICE}/Inventory", pb.InventoryRequest, pb.InventoryAnswer)
PUT_NOTES = unary_of(f"{_SERVICE}/PutNotes", pb.PutNotesRequest, pb.PutNotesAnswer)
READ_NOTES = unary_of(f"{_SERVICE}/ReadNotes", pb.ReadNotesRequest, pb.ReadNotesAnswer)
PUT_COPY = unary_of(f"{_SERVICE}/PutCopy", pb.PutCopyRequest, pb.PutCopyAnswer)
LIST_COPIES = unary_of(f"{_SERVICE}/ListCopies", pb.ListCopiesRequest, pb.ListCopiesAnswer)
READ_COPY = unary_of(f"{_SERVICE}/ReadCopy", pb.ReadCopyRequest, pb.ReadCopyAnswer)


def note_to_wire(note: Note) -> pb.RecordNote:
    era, created, deleted, version = note.order
    return pb.RecordNote(era=era, path=note.path, created=created, deleted=deleted, version=version, value=note.value)


def note_of(sent: pb.RecordNote) -> Note:
    return Note(sent.path, NoteOrder(sent.era, sent.created, sent.deleted, sent.version), sent.value)
