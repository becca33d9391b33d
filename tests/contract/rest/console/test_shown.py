"""How values are shown, and the geometry of charts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from oncelog.metadata.console.charts import lines, strip
from oncelog.metadata.console.rendering import labelled
from oncelog.metadata.console.shown import ago, binary, change, duration, exact, number, short, visible

THIN = "\u202f"
NOON_MS = 1_800_000_000_120


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(1_204_331), "1 204 331"), (number(0), "0"), (number(None), "–"), (number(0.25), "0.2"),
        (number(3.0), "3"), (number(12.7), "13"), (number(-1_500), "-1 500"),
        (binary(1_023), "1023 B"), (binary(1_536), "1.5 KiB"), (binary(150 << 30), "150 GiB"), (binary(None), "–"),
        (binary(1 << 70), "1048576 PiB"), (duration(0.25), "250 ms"), (duration(0), "0 s"), (duration(59.9), "59 s"),
        (duration(3_599), "59 min"), (duration(86_399), "23 h"), (duration(200_000), "2 d"), (duration(None), "–"),
        (exact(NOON_MS), "2027-01-15 08:00:00.120 UTC"), (exact(1 << 62), f"{1 << 62} ms since 1970"),
        (exact(None), "–"), (short("0123456789abcdef"), "01234567…cdef"), (short("0123456789abcd"), "0123456789abcd"),
        (ago(None, NOON_MS), "–"),
        (ago(NOON_MS, NOON_MS + 12_400), '<time title="2027-01-15 08:00:00.120 UTC">12 s ago</time>'),
        (ago(NOON_MS, NOON_MS), '<time title="2027-01-15 08:00:00.120 UTC">now</time>'),
        (ago(NOON_MS, NOON_MS - 90_000), '<time title="2027-01-15 08:00:00.120 UTC">in 1 min</time>'),
    ],
)  # fmt: skip
def test_value_is_shown(shown: str, text: str) -> None:
    """Thin spaces are written as spaces here."""
    assert shown.replace(THIN, " ") == text


def test_line_has_a_gap_where_a_value_is_unknown() -> None:
    """Unknown is not zero, and a value between two gaps is drawn, too."""
    assert lines([]) == lines([None, None]) == []
    assert lines([0.0, 10.0, None, 5.0], width=30, height=12) == [
        "0.0,11.0 1.0,11.0 9.0,1.0 11.0,1.0",
        "29.0,6.0 30.0,6.0",
    ]


@settings(max_examples=100)
@given(st.lists(st.floats(min_value=0, max_value=1e15), min_size=1, max_size=300))
def test_strip_fills_its_width_and_hides_nothing(sizes: list[float]) -> None:
    """However small a part is beside the others."""
    pieces = strip([(size, "good", "") for size in sizes])
    assert len(pieces) == len(sizes)
    assert pieces[0].x == 0
    assert pieces[-1].x + pieces[-1].width == pytest.approx(1_000, abs=0.1)
    assert all(piece.width >= min(2.0, 500 / len(sizes)) for piece in pieces)


def test_cells_of_a_table_say_their_column() -> None:
    """A narrow window shows each row as a list of cells, with these labels. Columns may be links that sort."""
    rows = Markup('<tr><td class="n">1</td><td>{}</td></tr><tr><td>2</td></tr>').format('<td a="x">')
    found = labelled(rows, ["#Count", Markup('<a href="/?sort=name">Name &amp; "x"</a>')])
    assert found == (
        '<tr><td data-label="Count" class="n">1</td>'
        '<td data-label="Name &amp; &#34;x&#34;">&lt;td a=&#34;x&#34;&gt;</td>'
        '</tr><tr><td data-label="Count">2</td></tr>'
    )


@pytest.mark.parametrize("text", ["\u202e", "\u2066", "\u200f", "\u061c"])
def test_direction_of_text_is_shown_as_what_it_is(text: str) -> None:
    """HTML of the templates stays as it is."""
    assert visible(f"a{text}b") == f"a⟨U+{ord(text):04X}⟩b"
    assert visible(Markup(f"<b>{text}</b>")) == f"<b>{text}</b>"
    assert visible(7) == 7


def test_change_has_its_sign() -> None:
    assert [change(each) for each in (1_200, -30, 0, None)] == ["+1\u202f200", "−30", "0", "–"]
