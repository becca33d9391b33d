"""How many messages one micro-batch takes: exact by rows, estimated from the average size of a row by bytes. Pure.

Bytes are those of entries as they are stored: compressed, where the producer compresses. The average size of a row is
known for each closed ledger from the ledger's length. For the open ledger of a topic it is that of a sample, or of the
ledger before it.
"""

from collections.abc import Iterable, Mapping

from oncelog_spark.source.offsets import Span, TopicState

#: A row's bytes where neither a closed ledger nor a sample gives an average.
ROW_BYTES = 1024.0


def admit(spans: Iterable[Span], rows_max: int | None) -> list[Span]:
    """The first rows_max messages, shared among the topics by how many messages each has; None: all.

    Shares are rounded down, and the rest goes to the smallest shares first: a busy topic never starves another one.
    """
    wanted = [span for span in sorted(spans) if span.rows > 0]
    total = sum(span.rows for span in wanted)
    if rows_max is None or total <= rows_max:
        return wanted
    shares = [span.rows * rows_max // total for span in wanted]
    smallest = sorted(range(len(wanted)), key=lambda number: (shares[number], -wanted[number].rows))
    for number in smallest[: rows_max - sum(shares)]:
        shares[number] += 1
    return [span._replace(end=span.first + share) for span, share in zip(wanted, shares, strict=True) if share]


def weights_of(span: Span, state: TopicState | None, open_row_bytes: float | None) -> list[tuple[int, float]]:
    """[(rows, bytes of each)] of the span, in order. open_row_bytes: from a sample of the topic; None: no sample."""
    pieces: list[tuple[int, float]] = []
    at, last = span.first, None
    for ledger in () if state is None else state.closed:
        last = ledger.length_bytes / max(1, ledger.end - ledger.first)
        rows = min(ledger.end, span.end) - max(ledger.first, at)
        if rows > 0:
            pieces.append((rows, last))
            at += rows
    if at < span.end:
        known = open_row_bytes if open_row_bytes is not None else last
        pieces.append((span.end - at, ROW_BYTES if known is None else known))
    return pieces


def admit_bytes(
    spans: Iterable[Span], states: Mapping[str, TopicState], samples: Mapping[str, float], bytes_max: int | None
) -> list[Span]:
    """The first bytes_max bytes, shared as in `admit`, but at least one row of each topic; None: all."""
    wanted = [span for span in sorted(spans) if span.rows > 0]
    weights = [weights_of(span, states.get(span.topic), samples.get(span.topic)) for span in wanted]
    totals = [sum(rows * each for rows, each in pieces) for pieces in weights]
    if bytes_max is None or sum(totals) <= bytes_max:
        return wanted
    share = bytes_max / sum(totals)
    return [
        span._replace(end=span.first + _rows_within(pieces, total * share))
        for span, pieces, total in zip(wanted, weights, totals, strict=True)
    ]


def admitted(
    spans: Iterable[Span],
    states: Mapping[str, TopicState],
    samples: Mapping[str, float],
    *,
    rows_max: int | None,
    bytes_max: int | None,
) -> list[Span]:
    """The messages that both limits allow."""
    return admit(admit_bytes(spans, states, samples, bytes_max), rows_max)


def _rows_within(pieces: Iterable[tuple[int, float]], budget: float) -> int:
    """At least one."""
    found = 0
    for rows, each in pieces:
        fitting = rows if each <= 0 else min(rows, int(budget / each))
        found += fitting
        budget -= fitting * each
        if fitting < rows:
            break
    return max(1, found)
