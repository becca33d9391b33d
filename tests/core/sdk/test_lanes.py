"""The order in which received messages are handled."""

from oncelog.core.sdk.consumer.lanes import Lanes

G = (0, 1)


def taken(lanes: Lanes[str]) -> list[str]:
    """What can be handled now, left busy."""
    found = []
    while (one := lanes.next()) is not None:
        found.append(one[1])
    return found


def filled(*names: str, recalls: bool = False) -> Lanes[str]:
    """Messages "a0", "b1" … in lanes "a", "b" …"""
    lanes = Lanes[str](recalls=recalls)
    for index, name in enumerate(names):
        lanes.add(name, G, index, f"{name}{index}")
    return lanes


def test_messages_of_a_lane_are_handled_one_after_the_other() -> None:
    """Those of other lanes do not wait for it."""
    lanes = filled("a", "a", "b")
    (a, first), (b, other) = lanes.next() or (None, ""), lanes.next() or (None, "")
    assert (first, other, lanes.next(), lanes.waiting) == ("a0", "b2", None, 1)
    assert a is not None
    assert b is not None
    lanes.handled(a)
    assert taken(lanes) == ["a1"]


def test_failed_message_comes_again_before_those_behind_it() -> None:
    """Whatever arrives meanwhile."""
    lanes = filled("a", "a")
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    assert lanes.failed(lane) == 1
    lanes.add("a", G, 2, "a2")
    assert (taken(lanes), lanes.held) == ([], 1)
    lanes.add("a", G, 0, "a0 again")
    assert (lanes.next() or (lane, ""))[1] == "a0 again"
    assert lanes.held == 0
    lanes.handled(lane)
    assert (lanes.next() or (lane, ""))[1] == "a1"


def test_message_delivered_again_while_it_is_handled_is_handled_once() -> None:
    """Unless it fails: then the newer delivery counts, and none is waited for."""
    lanes = filled("a", "a")
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    lanes.add("a", G, 0, "a0 again")
    lanes.handled(lane)
    assert (lanes.next() or (lane, ""))[1] == "a1"
    lanes.add("a", G, 1, "a1 again")
    assert lanes.failed(lane) is None
    assert taken(lanes) == ["a1 again"]


def test_newer_grant_voids_what_waits() -> None:
    """All of it is delivered again, and a failed message is not waited for."""
    lanes = filled("a", "a", "a")
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    lanes.failed(lane)
    lanes.add("a", (0, 2), 0, "a0 new")
    lanes.add("a", G, 1, "late and old")
    assert (lanes.waiting, lanes.held) == (1, 0)
    assert taken(lanes) == ["a0 new"]


def test_lane_whose_message_does_not_come_again_gives_the_rest_back() -> None:
    """Another consumer may have the key now. A time-out of an earlier hold means nothing."""
    lanes = filled("a", "a", "a")
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    first = lanes.failed(lane) or 0
    lanes.add("a", G, 0, "a0 again")
    lanes.next()
    second = lanes.failed(lane) or 0
    assert lanes.given_up(lane, first) == []
    assert lanes.given_up(lane, second) == ["a1", "a2"]
    assert (lanes.waiting, lanes.held, taken(lanes)) == (0, 0, [])
    lanes.add("a", G, 1, "a1 again")
    assert taken(lanes) == ["a1 again"]


def test_recalled_messages_are_handled_when_they_come_again_behind_the_failed_one() -> None:
    """What the owner sent before it recalled them would be handled twice."""
    lanes = filled("a", "a", "a", recalls=True)
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    lanes.failed(lane)
    lanes.add("a", G, 3, "a3")
    assert (taken(lanes), lanes.waiting, lanes.held) == ([], 0, 1)
    for index in range(4):
        lanes.add("a", G, index, f"a{index} again")
    for index in range(4):
        assert (lanes.next() or (lane, ""))[1] == f"a{index} again"
        lanes.handled(lane)


def test_recalled_messages_behind_a_dead_letter_are_handled_once() -> None:
    """They come again when the letter is stored; where nothing is recalled, the lane goes on at once."""
    lanes = filled("a", "a", "a", recalls=True)
    lane, _ = lanes.next() or (None, "")
    assert lane is not None
    assert lanes.buried(lane) == 1
    lanes.add("a", G, 2, "a2")
    assert (taken(lanes), lanes.waiting) == ([], 0)
    lanes.add("a", G, 1, "a1 again")
    assert (lanes.next() or (lane, ""))[1] == "a1 again"
    assert lanes.buried(lane) is None
    ordered = filled("a", "a")
    lane, _ = ordered.next() or (None, "")
    assert lane is not None
    assert ordered.buried(lane) is None
    assert taken(ordered) == ["a1"]
