"""Methods of the SubscriptionAdmin service; subscriptions.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import subscriptions_pb2 as pb

_SERVICE = "/oncelog.wire.v1.SubscriptionAdmin"
DESCRIBE_SUBSCRIPTIONS = unary_of(
    f"{_SERVICE}/DescribeSubscriptions", pb.DescribeSubscriptionsRequest, pb.DescribeSubscriptionsAnswer
)
CHANGE_SUBSCRIPTION = unary_of(
    f"{_SERVICE}/ChangeSubscription", pb.ChangeSubscriptionRequest, pb.ChangeSubscriptionAnswer
)
PEEK_MESSAGE = unary_of(f"{_SERVICE}/PeekMessage", pb.PeekMessageRequest, pb.PeekMessageAnswer)
