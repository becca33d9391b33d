"""A client that sends arbitrary bytes and frames to the gRPC ports, without the checks of the SDK.

Its channels have gRPC's own settings: no keepalive ends a connection to a process that is stopped.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc
from crc32c import crc32c

from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import Generation, OwnerEpoch, ProducerId, SequenceId, SessionNumber, TopicId
from oncelog.rpc.codecs.owner_codec import (
    PUBLISH,
    EndedSession,
    OpenGranted,
    OpenRequest,
    PublishFrame,
    ReceivedAnswers,
    decode_publish_answers,
    encode_publish,
)

DEADLINE_S = 30.0
PUBLISH_TIME_MS = 1_700_000_000_000


def batch_of(
    instance: ProducerInstance, first: int, values: Sequence[bytes], *, last: int | None = None, deltas: bytes = b""
) -> bytes:
    """The bytes of one batch; dense ids unless last and deltas say otherwise."""
    return encode_batch(
        encode_values(values),
        producer_id=instance.producer_id,
        generation=instance.generation,
        first=SequenceId(first),
        last=SequenceId(first + len(values) - 1 if last is None else last),
        count=len(values),
        publish_time_ms=PUBLISH_TIME_MS,
        checksum=crc32c,
        deltas=deltas,
    )


class PublishWire:
    """One publish stream."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._open_id = 0
        #: {session: {request: its fate}}, as they arrive
        self.answers: dict[SessionNumber, dict[int, Outcome | OncelogError]] = {}
        self.ended: list[EndedSession] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, address: str) -> AsyncIterator[Self]:
        async with grpc.aio.insecure_channel(address) as channel:
            callee: Any = channel.stream_stream(PUBLISH.path)
            call = callee()
            try:
                yield cls(call)
            finally:
                call.cancel()

    async def open(
        self,
        topic: str,
        topic_id: str,
        name: str | None,
        *,
        resume: ProducerInstance | None = None,
        present: ProducerInstance | None = None,
        owner_epoch_seen: int = 0,
    ) -> OpenGranted | OncelogError:
        """Receive the owner's frames."""
        self._open_id += 1
        epoch = OwnerEpoch(owner_epoch_seen)
        opening = OpenRequest(
            self._open_id, topic, TopicId(topic_id), name, resume=resume, present=present, owner_epoch_seen=epoch
        )
        await self.write(PublishFrame(opens=[opening]))
        async with asyncio.timeout(DEADLINE_S):
            while True:
                frame = await self._read()
                for granted in frame.granted:
                    if granted.open_id == self._open_id:
                        return granted
                for denied in frame.denied:
                    if denied.open_id == self._open_id:
                        return denied.error

    async def granted(self, topic: str, topic_id: str, name: str | None, **how: Any) -> OpenGranted:
        """`open`, which must succeed."""
        answer = await self.open(topic, topic_id, name, **how)
        assert isinstance(answer, OpenGranted), answer
        return answer

    async def send(self, session: SessionNumber, request: int, batch: bytes) -> None:
        await self.write(PublishFrame([session], [request], [batch]))

    async def stored(self, session: SessionNumber, request: int) -> Outcome:
        """`fate`, which must not be an error."""
        fate = await self.fate(session, request)
        assert not isinstance(fate, OncelogError), fate
        return fate

    async def fate(self, session: SessionNumber, request: int) -> Outcome | OncelogError:
        """The response to one batch, or the reason why its session ended without one."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if request in self.answers.get(session, {}):
                    return self.answers[session][request]
                for ended in self.ended:
                    if ended.session == session:
                        assert ended.error is not None
                        return ended.error
                await self._read()

    async def write(self, frame: PublishFrame) -> None:
        await self._call.write(encode_publish(frame))

    async def _read(self) -> ReceivedAnswers:
        data = await self._call.read()
        assert data is not grpc.aio.EOF, "the owner has ended the stream"
        frame = decode_publish_answers(data)
        for session, answers in frame.answers.items():
            self.answers.setdefault(session, {}).update(answers)
        self.ended += frame.ended
        return frame


def instance_of(granted: OpenGranted) -> ProducerInstance:
    return ProducerInstance(ProducerId(granted.producer_id), Generation(granted.generation))


async def code_of_garbage(address: str, path: str, data: bytes, *, streaming: bool) -> grpc.StatusCode:
    """How the server ends a call of `path` whose first message is `data`."""
    async with grpc.aio.insecure_channel(address) as channel:
        if not streaming:
            callee: Any = channel.unary_unary(path)
            call = callee(data, timeout=DEADLINE_S)
            return await call.code()  # type: ignore[no-any-return]
        callee = channel.stream_stream(path)
        call = callee(timeout=DEADLINE_S)
        await call.write(data)
        await call.done_writing()
        return await call.code()  # type: ignore[no-any-return]


async def noise(address: str, seed: int) -> bytes:
    """Send random bytes to the port, half of them behind HTTP/2's preface; returns what came back before the end."""
    own = random.Random(seed)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if seed % 2 else b""
        writer.write(preface + own.randbytes(own.randrange(1, 4096)))
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
