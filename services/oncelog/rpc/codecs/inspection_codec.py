"""Methods of the Inspection service; inspection.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import inspection_pb2 as pb

_SERVICE = "/oncelog.wire.v1.Inspection"
LIST_SUBSCRIPTIONS = unary_of(f"{_SERVICE}/ListSubscriptions", pb.ListSubscriptionsRequest, pb.InspectionAnswer)
DESCRIBE_ACK_STATE = unary_of(f"{_SERVICE}/DescribeAckState", pb.AckStateRequest, pb.InspectionAnswer)
PREVIEW_SEEK = unary_of(f"{_SERVICE}/PreviewSeek", pb.PreviewSeekRequest, pb.InspectionAnswer)
