"""The synchronous API is typed and documented by itself: signatures of its own, equal to those of asyncio."""

import inspect
import pydoc
import re
from concurrent.futures import Future
from typing import assert_type

import pytest

import oncelog

#: {synchronous class: (its asyncio original, what only that has)}
ORIGINALS: dict[type, tuple[type, set[str]]] = {
    oncelog.Client: (oncelog.AsyncClient, set()),
    oncelog.Producer: (oncelog.AsyncProducer, {"all_answered", "forked", "open"}),
    oncelog.Search: (oncelog.AsyncSearch, set()),
    oncelog.Reader: (oncelog.AsyncReader, {"batch_up_to", "forked", "open"}),
    oncelog.Consumer: (oncelog.AsyncConsumer, {"all_settled", "forked", "handler_run", "open", "unsettled"}),
}
#: attributes of the originals that are properties here
ATTRIBUTES = {"consumer_name", "failure", "subscription", "topic"}
#: {what the original returns: what is returned here}
RETURNED = {original: own for own, (original, _) in ORIGINALS.items()}
FUTURES = {"send_nowait", "ack_nowait"}


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("own", ORIGINALS, ids=lambda own: own.__name__)
def test_methods_have_the_arguments_of_their_originals(own: type) -> None:
    """Names, kinds, defaults and types; the result is the same, or its synchronous counterpart."""
    original, only_there = ORIGINALS[own]
    assert public(own) - ATTRIBUTES == public(original) - only_there - ATTRIBUTES
    for name in public(own) & public(original):
        method, there = getattr(own, name), getattr(original, name)
        if isinstance(method, property):
            assert method.fget is not None
            assert there.fget is not None
            method, there = method.fget, there.fget
        mine, others = inspect.signature(method), inspect.signature(there)
        wanted = others.replace(return_annotation=RETURNED.get(others.return_annotation, others.return_annotation))
        if name == "run":  # whose handler is a plain function here
            mine, wanted = (each.replace(parameters=[*each.parameters.values()][2:]) for each in (mine, wanted))
        if name in FUTURES:
            wanted = wanted.replace(return_annotation=mine.return_annotation)
        assert mine == wanted, f"{own.__name__}.{name}"
        source = inspect.getsource(method)
        for argument in mine.parameters:
            assert len(re.findall(rf"\b{argument}\b", source)) > 1, f"{own.__name__}.{name} uses its {argument}"


@pytest.mark.parametrize("own", ORIGINALS, ids=lambda own: own.__name__)
def test_help_is_that_of_a_blocking_call(own: type) -> None:
    """It showed `async` functions, and classes of asyncio as results."""
    for name in public(own):
        method = getattr(own, name)
        shown = pydoc.plain(pydoc.render_doc(method))
        assert not inspect.iscoroutinefunction(method)
        assert (method.__doc__ or "").strip(), name
        for word in ("await ", "async ", "AsyncProducer", "AsyncReader", "AsyncConsumer", "Coroutine", "Task["):
            assert word not in shown, f"{own.__name__}.{name}: {word}"
    assert "-> oncelog.client.sync.producer.Producer" in pydoc.plain(pydoc.render_doc(oncelog.Client.create_producer))


def checked_by_mypy(client: oncelog.Client) -> None:
    """Never called: a wrong type ends `make lint`."""
    producer = client.create_producer("flights", producer_name="importer")
    assert_type(producer, oncelog.Producer)
    assert_type(producer.send(b"x", key="k"), oncelog.SendResult)
    assert_type(producer.send_nowait(b"x"), Future[oncelog.SendResult])
    assert_type(producer.send_nowait(b"x", on_result=lambda result, error: None), None)
    assert_type(producer.send_many([b"x"]), oncelog.BatchResult)
    reader = client.create_reader("flights", start=oncelog.EARLIEST)
    assert_type(reader, oncelog.Reader)
    assert_type(reader.read_next(timeout=1), oncelog.Message)
    consumer = client.subscribe("flights", subscription="s")
    assert_type(consumer, oncelog.Consumer)
    assert_type(consumer.receive_batch(10), oncelog.ConsumerBatch)
    assert_type(consumer.ack_nowait(consumer.receive()), Future[oncelog.AckResult])
    client.create_producer("flights", compression="gzip")  # type: ignore[arg-type]
    client.create_producer(7)  # type: ignore[arg-type]
    producer.send("text")  # type: ignore[arg-type]
