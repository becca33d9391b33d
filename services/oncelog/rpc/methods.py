"""RPC methods: the path of each, and its codecs. Servers and channels share them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from google.protobuf.message import Message

from oncelog.rpc.frames import REQUEST_BYTES_MAX, parse, parse_request

#: As the caller gives a value, and as the callee receives it: bulk bytes are sent from buffers and arrive as slices.
RequestT = TypeVar("RequestT")
ReceivedRequestT = TypeVar("ReceivedRequestT")
AnswerT = TypeVar("AnswerT")
ReceivedAnswerT = TypeVar("ReceivedAnswerT")
PbRequestT = TypeVar("PbRequestT", bound=Message)
PbAnswerT = TypeVar("PbAnswerT", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT]):
    """path: "/package.Service/Method". Decoders raise InvalidArgument for bytes that they cannot read."""

    path: str
    encode_request: Callable[[RequestT], bytes]
    decode_request: Callable[[bytes], ReceivedRequestT]
    encode_answer: Callable[[AnswerT], bytes]
    decode_answer: Callable[[bytes], ReceivedAnswerT]


class UnaryMethod(Method[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT]):
    """One request, one answer, always with a deadline."""

    __slots__ = ()


class ReadMethod(Method[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT]):
    """One request, a stream of answers."""

    __slots__ = ()


class StreamMethod(Method[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT]):
    """Streams in both directions, independent of each other."""

    __slots__ = ()


def unary_of(
    path: str,
    request: type[PbRequestT],
    answer: type[PbAnswerT],
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
    check: Callable[[PbRequestT], None] = lambda _: None,
) -> UnaryMethod[PbRequestT, PbRequestT, PbAnswerT, PbAnswerT]:
    """A unary method whose values are the generated messages. check: raises InvalidArgument for a received request."""

    def decode_request(data: bytes) -> PbRequestT:
        received = parse_request(request.FromString, data, bytes_max=request_bytes_max)
        check(received)
        return received

    return UnaryMethod(
        path,
        request.SerializeToString,
        decode_request,
        answer.SerializeToString,
        partial(parse, answer.FromString),
    )


def stream_of(
    path: str,
    request: type[PbRequestT],
    answer: type[PbAnswerT],
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> StreamMethod[PbRequestT, PbRequestT, PbAnswerT, PbAnswerT]:
    """A stream of generated messages in both directions, for streams of few small messages."""
    return StreamMethod(
        path,
        request.SerializeToString,
        partial(parse_request, request.FromString, bytes_max=request_bytes_max),
        answer.SerializeToString,
        partial(parse, answer.FromString),
    )
