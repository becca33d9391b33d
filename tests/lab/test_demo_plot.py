"""The plot of the demo: what it draws, that it stays small, and that every text is escaped."""

from xml.etree import ElementTree as ET

from oncelog_lab.demo.plot import HEIGHT, WIDTH, demo_plot
from oncelog_lab.demo.timeline import SAMPLES_MAX, Timeline


def drawn(timeline: Timeline, title: str = "ok") -> ET.Element:
    return ET.fromstring(demo_plot(timeline, title))


def curve(svg: ET.Element, kind: str) -> list[tuple[float, float]]:
    (line,) = svg.findall(f"{{*}}polyline[@class='{kind}']")
    pairs = (pair.split(",") for pair in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_curves_rise_from_the_first_sample_to_the_last() -> None:
    timeline = Timeline()
    for tenth in range(11):
        timeline.sample(tenth / 10, 100 * tenth, 50 * tenth)
    timeline.killed(0.5, "owner")
    svg = drawn(timeline)
    published, consumed = curve(svg, "published"), curve(svg, "consumed")
    assert len(published) >= 11
    assert published[0][1] > published[-1][1]
    assert consumed[-1][1] > published[-1][1], "half as many are half as high"
    (kill,) = svg.findall("{*}line[@class='kill']")
    assert float(kill.attrib["x1"]) == published[5][0]
    assert "O owner" in "".join(svg.itertext())


def test_hours_of_samples_stay_small_and_end_where_the_run_ended() -> None:
    timeline = Timeline()
    count = 20 * SAMPLES_MAX + 7
    for number in range(count):
        timeline.sample(number / 20, number, number)
    assert len(timeline.samples) <= SAMPLES_MAX
    assert timeline.points()[-1].published == count - 1
    assert len(curve(drawn(timeline), "published")) <= WIDTH + 1


def test_nothing_is_drawn_outside_and_texts_are_escaped() -> None:
    timeline = Timeline()
    timeline.sample(0.0, 0, 0)
    for kind in ("published", "consumed"):
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in curve(drawn(timeline), kind))
    assert curve(drawn(Timeline()), "published") == []
    assert drawn(timeline, '<b>&"').findtext("{*}title") == '<b>&"'
