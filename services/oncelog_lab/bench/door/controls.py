"""What the rows of a door are compared with: the same batches by the SDK, in the same run."""

from oncelog.client.client import AsyncClient
from oncelog.core.formats.columns import LENGTH_BYTES
from oncelog_lab.bench.consume import count_batches, fill, read_whole
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import Load, Measured
from oncelog_lab.bench.figures import BenchRow, FigureTarget
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.values import make_values

#: Messages of a batch, and batches in flight.
LARGE_MESSAGES, SMALL_MESSAGES, WINDOW = 64, 1000, 32
SINGLES_WINDOW = 1000
#: Of all messages, those that are sent one by one.
SINGLES_SHARE = 50
CONNECTIONS = 1000


def lists(client: AsyncClient, total: int, *, batch: int, message_bytes: int) -> Load:
    """send_many of batches."""
    values = make_values(message_bytes, LIST_BATCHES * batch)

    async def native(meter: CpuMeter) -> tuple[int, float]:
        (producer,) = await new_producers(client, 1, batch_bytes=batch * (message_bytes + LENGTH_BYTES))
        async with producer:
            with meter:
                rate = await fill(producer, values, total)
        return total, total / rate

    return native


async def filled_topic(client: AsyncClient, total: int, *, message_bytes: int) -> str:
    """A topic with batches of SMALL_MESSAGES. Returns tenant/namespace/name."""
    (producer,) = await new_producers(client, 1, batch_bytes=SMALL_MESSAGES * (message_bytes + LENGTH_BYTES))
    async with producer:
        await fill(producer, make_values(message_bytes, LIST_BATCHES * SMALL_MESSAGES), total)
    return producer.topic


def batches_read(client: AsyncClient, topic: str, total: int) -> Load:
    """read_batch of a whole topic."""

    async def native(meter: CpuMeter) -> tuple[int, float]:
        with meter:
            return total, total / await read_whole(client, topic, total, count_batches)

    return native


def large_rows(of: str, door: Measured, native: Measured, message_bytes: int) -> list[BenchRow]:
    """Two rows. of: whose client."""
    return [
        BenchRow(
            f"{of}: publish, bare, {LARGE_MESSAGES} x {message_bytes} B", door.rate * message_bytes / 1e6, "MB/s",
            native.rate * message_bytes / 1e6, FigureTarget(0.5, of_ratio=True, of="send_many"), both(door, native),
            us(door, native),
        ),
        BenchRow(
            f"{of}: the owner's CPU for such a batch", door.cpu_us["owner"] * LARGE_MESSAGES, "us",
            native.cpu_us["owner"] * LARGE_MESSAGES,
            FigureTarget(1.05, at_most=True, of_ratio=True, of="the SDK's"),
        ),
    ]  # fmt: skip


def small_row(of: str, door: Measured, native: Measured, message_bytes: int) -> BenchRow:
    return BenchRow(
        f"{of}: publish, bare, {SMALL_MESSAGES:,} x {message_bytes} B", door.rate, "msg/s", native.rate,
        FigureTarget(400_000), both(door, native), us(door, native),
    )  # fmt: skip


def read_rows(of: str, as_came: Measured, made: Measured, control: Measured, made_target: float) -> list[BenchRow]:
    """Two rows. as_came: batches of such clients. made: of the SDK, converted."""
    return [
        BenchRow(
            f"{of}: read, bare, batches of its clients", as_came.rate, "msg/s", control.rate,
            FigureTarget(0.6, of_ratio=True, of="read_batch"), both(as_came, control), us(as_came, control),
        ),
        BenchRow(
            f"{of}: read, bare, batches of the SDK", made.rate, "msg/s", control.rate, FigureTarget(made_target),
            both(made, control), us(made, control),
        ),
    ]  # fmt: skip


def idle_row(what: str, meter: CpuMeter) -> BenchRow:
    return BenchRow(what, meter.cores()["door"] * 100, "% CPU", None, FigureTarget(2, at_most=True))


def both(door: Measured, native: Measured) -> dict[str, object]:
    return {**door.detail(), "native": native.detail()}


def us(door: Measured, native: Measured | None = None) -> str:
    """The CPU of a message."""
    return f"CPU us: {door.shown()}" + (f"; SDK: {native.shown()}" if native is not None else "")
