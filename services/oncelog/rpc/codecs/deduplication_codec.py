"""Methods of the DeduplicationAdmin service; deduplication.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import deduplication_pb2 as pb

_SERVICE = "/oncelog.wire.v1.DeduplicationAdmin"
DESCRIBE_DEDUPLICATION = unary_of(f"{_SERVICE}/DescribeDeduplication", pb.DeduplicationTopic, pb.DeduplicationAnswer)
VERIFY_FOLD = unary_of(f"{_SERVICE}/VerifyFold", pb.VerifyFoldRequest, pb.DeduplicationAnswer)
TAKE_SNAPSHOT = unary_of(f"{_SERVICE}/TakeSnapshot", pb.DeduplicationTopic, pb.DeduplicationAnswer)
