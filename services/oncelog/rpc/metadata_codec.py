"""Methods of the Metadata service. Its messages are few and small: the generated ones are used as they are."""

from oncelog.rpc.methods import stream_of, unary_of
from oncelog.wire import metadata_pb2 as pb

#: Key of the metadata that names the owner for which a gateway is to pass a call on.
GATEWAY_OWNER = "oncelog-owner"
_SERVICE = "/oncelog.wire.v1.Metadata"
LOOKUP = unary_of(f"{_SERVICE}/Lookup", pb.LookupRequest, pb.LookupAnswer)
OWNER_STREAM = stream_of(f"{_SERVICE}/OwnerStream", pb.OwnerHello, pb.OwnerCommand)
LEDGERS = unary_of(f"{_SERVICE}/Ledgers", pb.LedgersRequest, pb.LedgersAnswer)
TOPICS = unary_of(f"{_SERVICE}/Topics", pb.TopicsRequest, pb.TopicsAnswer)
REST = unary_of(f"{_SERVICE}/Rest", pb.RestRequest, pb.RestAnswer)
#: The same as its server sees it, one message each way: a handler of a stream sees the metadata of its call.
REST_SERVED = stream_of(f"{_SERVICE}/Rest", pb.RestRequest, pb.RestAnswer)
