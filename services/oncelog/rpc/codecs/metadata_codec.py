"""Methods of the Metadata service. Its messages are few and small: the generated ones are used as they are."""

from oncelog.core.formats.compression import PAYLOAD_RAW_BYTES_MAX
from oncelog.rpc.frames import REQUEST_BYTES_MAX
from oncelog.rpc.methods import stream_of, unary_of
from oncelog.wire import metadata_pb2 as pb

#: gRPC metadata key: the owner to which a gateway forwards the call.
GATEWAY_OWNER = "oncelog-owner"
_SERVICE = "/oncelog.wire.v1.Metadata"
LOOKUP = unary_of(f"{_SERVICE}/Lookup", pb.LookupRequest, pb.LookupAnswer)
OWNER_STREAM = stream_of(f"{_SERVICE}/OwnerStream", pb.OwnerHello, pb.OwnerCommand)
LEDGERS = unary_of(f"{_SERVICE}/Ledgers", pb.LedgersRequest, pb.LedgersAnswer)
TOPICS = unary_of(f"{_SERVICE}/Topics", pb.TopicsRequest, pb.TopicsAnswer)
RESOLVE_DEAD_LETTER_TOPIC = unary_of(
    f"{_SERVICE}/ResolveDeadLetterTopic", pb.ResolveDeadLetterTopicRequest, pb.ResolveDeadLetterTopicAnswer
)
#: Bytes of the letters of one request. One letter of any size fits, because it was a message in one batch of its topic;
#: so the limit of the whole request has room for the largest batch, and for the names beside the letters.
DEAD_LETTERS_BYTES_MAX = REQUEST_BYTES_MAX // 2
PUBLISH_DEAD_LETTERS = unary_of(
    f"{_SERVICE}/PublishDeadLetters",
    pb.PublishDeadLettersRequest,
    pb.PublishDeadLettersAnswer,
    request_bytes_max=PAYLOAD_RAW_BYTES_MAX + DEAD_LETTERS_BYTES_MAX,
)
#: Of a request or an answer of REST: below the maximum size of a gRPC message, with room for the headers. Each path has
#: a lower limit of its own.
REST_BYTES_MAX = 15 * 1024 * 1024
REST = unary_of(f"{_SERVICE}/Rest", pb.RestRequest, pb.RestAnswer)
#: REST as its server handles it, one message each way: only the handler of a stream can read the call's metadata.
REST_SERVED = stream_of(f"{_SERVICE}/Rest", pb.RestRequest, pb.RestAnswer, request_bytes_max=REST_BYTES_MAX)
