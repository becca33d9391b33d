"""The body of a head: read back as written, and refused when it is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.head import LedgerHead, decode_head, encode_head
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position

MEMBERS = tuple(Incarnation(each * 32) for each in "abc")
HEAD = LedgerHead(
    "public/default/t", MEMBERS, 2, 1, Incarnation("0" * 32), LedgerId(3), Position(LedgerId(7), EntryId(9))
)


@pytest.mark.parametrize("former", [None, Position(LedgerId(7), EntryId(9))])
def test_head_is_read_as_written(former: Position | None) -> None:
    head = LedgerHead("public/default/t", MEMBERS, 2, 1, Incarnation("0" * 32), LedgerId(3), former)
    assert decode_head(encode_head(head)) == head


def test_further_fields_are_passed_over() -> None:
    """A later version may say more."""
    assert decode_head(encode_head(HEAD)[:-1] + b',"x_future":[1]}') == HEAD


def test_format_of_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptEntry, match="this version reads format 1"):
        decode_head(encode_head(HEAD).replace(b'"format":1', b'"format":2'))


@given(data=st.binary(max_size=80))
def test_arbitrary_bytes_are_no_head(data: bytes) -> None:
    """They raise CorruptEntry and no other exception."""
    body = encode_head(HEAD)
    for candidate in (data, body[: len(body) - len(data)] + data):
        try:
            decode_head(candidate)
        except CorruptEntry:
            continue
