"""How much one micro-batch takes of what waits: by rows exactly, by bytes by what a row weighs on average. Pure.

Bytes are those of entries as they are stored: compressed, where the producer compresses. What a row weighs is known for
each closed ledger from its length, and for the open ledger of a topic from the ledger before it, or from a sample.
"""

from collections.abc import Iterable, Mapping

from oncelog.pipeline.source.offsets import Span, TopicState

#: A row's bytes where nothing is known: neither a closed ledger nor a sample.
ROW_BYTES = 1024.0


def admit(spans: Iterable[Span], rows_max: int | None) -> list[Span]:
    """The first rows_max messages, each topic with its share of what waits; None: all.

    Shares are rounded down, and what is left goes to the smallest of them first: no topic waits behind a busy one for
    ever.
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
    """[(rows, bytes of each)] of the span, in its order. open_row_bytes: a sample of the topic, None: there is none."""
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
    """The first bytes_max bytes, each topic with its share of what waits, and at least one row; None: all."""
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
    """What both limits allow."""
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
