"""Methods of the MessageFinding service; finding.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import finding_pb2 as pb

_SERVICE = "/oncelog.wire.v1.MessageFinding"
FIND_MESSAGE = unary_of(f"{_SERVICE}/FindMessage", pb.FindMessageRequest, pb.FindMessageAnswer)
READ_STORED_MESSAGES = unary_of(f"{_SERVICE}/ReadStoredMessages", pb.StoredMessagesRequest, pb.StoredMessagesAnswer)
