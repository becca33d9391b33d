"""A source of effects that has waited as a standby, or whose topic was made anew."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client.client import AsyncClient
from oncelog.core.errors import StoreMismatch, SubscriptionGone
from oncelog_effects import source as source_module
from oncelog_effects.consumer import EffectsConsumer
from oncelog_effects.source import Attach, EffectsSource, Limits

pytestmark = pytest.mark.asyncio


class Outputs:
    """A store whose outputs are deleted and created again while the standby waits."""

    def __init__(self) -> None:
        self.id = "01" * 16

    async def store_id(self) -> str:
        return self.id


class Standby:
    """Its consumer: it is active once the outputs are others."""

    failure = None

    def __init__(self, store: Outputs) -> None:
        self._store = store

    async def until_active(self) -> None:
        self._store.id = "02" * 16

    async def close(self) -> None:
        pass


class Recreated(Standby):
    """Its topic is deleted and created again while it waits."""

    async def until_active(self) -> None:
        raise SubscriptionGone("the topic was deleted and created again: subscribe again")


def source_of(store: Outputs, attach: Attach, monkeypatch: pytest.MonkeyPatch) -> EffectsSource[Any]:
    monkeypatch.setattr(source_module, "network_of", lambda _: SimpleNamespace(lookup=SimpleNamespace(cluster_id="")))
    return EffectsSource(
        cast("AsyncClient", None), attach, cast("Any", store), lambda _messages, _connection: None,
        Limits(1, 1_000, None, asyncio.Semaphore(1)), topic="public/default/orders", subscription="s", effect="billing",
    )  # fmt: skip


@pytest.mark.hazard("recreated-output")
async def test_standby_writes_into_no_output_that_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It attaches again, and the owner compares the store with the one that the subscription is bound to."""
    store, attached = Outputs(), list[str]()

    async def attach(store_id: str, _: bool) -> EffectsConsumer:
        attached.append(store_id)
        if len(attached) > 1:
            raise StoreMismatch("the subscription is bound to another store")
        return cast("EffectsConsumer", Standby(store))

    source = source_of(store, attach, monkeypatch)
    with pytest.raises(StoreMismatch):
        await source.run()
    assert attached == ["01" * 16, "02" * 16]


async def test_program_whose_topic_was_made_anew_says_what_its_next_start_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended without a word about it, and the next one began at once. It does not attach again: a topic that was
    deleted by mistake would be created again."""
    store, attached = Outputs(), list[str]()

    async def attach(store_id: str, _: bool) -> EffectsConsumer:
        attached.append(store_id)
        return cast("EffectsConsumer", Recreated(store))

    with pytest.raises(SubscriptionGone) as ended:
        await source_of(store, attach, monkeypatch).run()
    assert len(attached) == 1
    assert ended.value.message == (
        "billing of public/default/orders: the topic was deleted and created again; this program ends. Start it again, "
        "and it begins at once: in a new topic where `start` says, in a new subscription of the same topic behind what "
        "has taken effect"
    )
