"""Each request that `pulsar-admin` 4.0.6 has sent for its commands, as it was captured: what the door asks the cluster,
and what it answers.

    > METHOD target body       from the tool
      METHOD target body       to the cluster, in this order
    < status body              to the tool
"""

import json
from pathlib import Path

import pytest

from tests.doors.rest.fake_rest import FakeRest, door_at

STEPS = (Path(__file__).parent / "pulsar_admin_4.txt").read_text().strip("\n").split("\n\n")


def shown(*words: str) -> str:
    return " ".join(word for word in words if word)


@pytest.mark.asyncio
async def test_requests_of_pulsar_admin() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        for step in STEPS:
            sent = next(line for line in step.splitlines() if line.startswith("> "))
            _, method, target, *body = sent.split(" ", 3)
            rest.asked.clear()
            answer = await door.request(method, target, content="".join(body).encode())
            calls = [(to, where, "" if given is None else json.dumps(given)) for to, where, given in rest.asked]
            asked = [f"  {shown(*call)}" for call in calls]
            assert [sent, *asked, shown("<", str(answer.status_code), answer.text)] == step.strip("\n").splitlines()
