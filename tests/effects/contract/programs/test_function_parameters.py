"""A function that cannot be called with what it gets is refused when it is decorated: it was tried again for ever."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from sqlalchemy import create_engine

import oncelog
from oncelog.core.errors import InvalidArgument
from oncelog_effects import SqlEffects, TopicEffects
from oncelog_effects.testing import MemoryEffects


def book(message: object, connection: object) -> None: ...


def alone(message: object) -> None: ...


async def alone_async(message: object) -> None: ...


def three(message: object, connection: object, session: object) -> None: ...


def named(message: object, *, connection: object) -> None: ...


def default(message: object, connection: object = None, retries: int = 3) -> None: ...


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def call(message: object, connection: object) -> None:
        function(message, connection, object())

    return call


class Shop:
    def book(self, message: object, connection: object) -> None: ...

    async def __call__(self, message: object, connection: object) -> None: ...


class Unknown:
    """As a mock, or a function of an extension: its parameters cannot be known."""

    __signature__ = "none"

    def __call__(self, *_: object) -> None: ...


def decorated(function: Any, effects: Any, **settings: Any) -> None:
    oncelog.process("orders", subscription="billing", effects=effects, **settings)(function)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (alone, r"function must take \(message, connection\), by position: alone\(message\) cannot be called so"),
        (alone_async, r"alone_async\(message\)"),
        (three, r"three\(message, connection, session\) .*missing a required argument: 'session'"),
        (named, r"named\(message, connection\)"),
        (partial(book, object(), object()), "partial"),
        (7, r"function must be a function that takes \(message, connection\), not int"),
    ],
)
def test_function_that_takes_other_arguments_is_refused(function: Any, said: str) -> None:
    """With the names of those that it must take."""
    with pytest.raises(InvalidArgument, match=said) as refused:
        decorated(function, MemoryEffects())
    assert refused.value.details["field"] == "function"


@pytest.mark.parametrize("store", [create_engine("sqlite://"), "sqlite:///shop.db", None, MemoryEffects])
def test_effects_that_are_no_store_are_refused(store: object) -> None:
    """It ended the program at its first message: `'Engine' object has no attribute 'store_id'`."""
    with pytest.raises(InvalidArgument, match=r"effects must be a store, such as SqlEffects\(engine\), not") as refused:
        decorated(book, store)
    assert refused.value.details["field"] == "effects"


def test_engine_that_is_none_of_sqlalchemy_is_refused() -> None:
    """It said `'str' object has no attribute 'dialect'`."""
    url: Any = "sqlite:///shop.db"
    with pytest.raises(
        InvalidArgument, match=r"engine must be that of SQLAlchemy, as create_engine\(url\) .*, not str"
    ):
        SqlEffects(url)


@pytest.mark.parametrize(
    "function",
    [
        book, default, lambda *_: None, partial(three, session=None), partial(three, None), with_session(three),
        Shop().book, Shop(), Unknown(), print,
    ],
)  # fmt: skip
def test_function_that_can_be_called_is_accepted(function: Any) -> None:
    """However its parameters are named, and also if they cannot be known."""
    decorated(function, MemoryEffects())
    decorated(oncelog.process("orders", subscription="s", effects=MemoryEffects())(function), MemoryEffects())


def test_what_a_function_gets_depends_on_store_and_batch() -> None:
    """With TopicEffects a message alone, also in batches."""
    for settings in ({}, {"batch": 5}):
        decorated(alone, TopicEffects(["out"]), **settings)
        with pytest.raises(InvalidArgument, match=r"must take \(message\), "):
            decorated(book, TopicEffects(["out"]), **settings)
    with pytest.raises(InvalidArgument, match=r"must take \(messages, connection\), "):
        decorated(alone, MemoryEffects(), batch=5)
