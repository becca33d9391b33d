"""core/publishing/client_order: which opening of a gateway's client wins."""

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.client_token import CHECK_MAX, TOKEN_MAX, check_of, decode_token, token_of
from oncelog.core.formats.opening import ClientToken, GatewayClient, ProducerInstance
from oncelog.core.ids import GENERATION_MAX, Generation, InstanceId, ProducerId, TopicId
from oncelog.core.publishing.client_order import KnownProducer, SessionClient, TokenVerdict, comes_late, verdict_on

TOPIC = TopicId("0" * 32)
X, Y = InstanceId(b"x" * 16), InstanceId(b"y" * 16)
KNOWN = KnownProducer(check=5, current=Generation(3), durable=True)


def token(generation: int, check: int = 5) -> ClientToken:
    return ClientToken(Generation(generation), check)


@pytest.mark.parametrize(
    ("presented", "known", "verdict"),
    [
        (token(3), KNOWN, TokenVerdict.CURRENT),
        (token(2), KNOWN, TokenVerdict.OLDER),
        (token(4), KNOWN, TokenVerdict.NEWER),
        (token(3, check=6), KNOWN, TokenVerdict.OF_ANOTHER),
        (token(4, check=6), KNOWN, TokenVerdict.OF_ANOTHER),
        (token(3), None, TokenVerdict.OF_ANOTHER),
        (token(3), KNOWN._replace(durable=False), TokenVerdict.UNDECIDED),
        (token(2), KNOWN._replace(durable=False), TokenVerdict.UNDECIDED),
        (token(3, check=6), KNOWN._replace(durable=False), TokenVerdict.OF_ANOTHER),
    ],
)
def test_token_is_worth_what_the_log_says(
    presented: ClientToken, known: KnownProducer | None, verdict: TokenVerdict
) -> None:
    """The check comes first: a generation of another producer says nothing about this one."""
    assert verdict_on(presented, known) is verdict


@pytest.mark.hazard("sessions-end-each-other")
@pytest.mark.parametrize(
    ("epoch", "holder", "late"),
    [
        (4, SessionClient(Y, 3), False),
        (3, SessionClient(Y, 3), True),
        (2, SessionClient(Y, 3), True),
        (0, SessionClient(Y, 0), True),
        (None, SessionClient(Y, 3), False),
        (2, SessionClient(Y, None), False),
        (3, SessionClient(X, 3), False),
        (3, None, False),
    ],
)
def test_openings_of_one_instance_are_ordered_by_epoch(
    epoch: int | None, holder: SessionClient | None, *, late: bool
) -> None:
    """A late request, or a twin, ends no session. A gateway that repeats its own request is not late, and where the
    client counts nothing, the later one wins."""
    assert comes_late(GatewayClient(epoch), X, holder) is late


def test_token_is_one_number() -> None:
    """It holds the whole generation, and is never 0, which means none."""
    for generation in (1, 7, GENERATION_MAX):
        instance = ProducerInstance(ProducerId(9), Generation(generation))
        number = token_of(TOPIC, instance)
        assert 0 < number < 2**63
        assert decode_token(number) == ClientToken(Generation(generation), check_of(TOPIC, ProducerId(9)))


@pytest.mark.parametrize("number", [-1, 0, 1, CHECK_MAX, TOKEN_MAX + 1, 2**64])
def test_number_that_no_client_was_given_is_refused(number: int) -> None:
    """No generation 0, and no bits above those of a generation."""
    with pytest.raises(InvalidArgument) as refused:
        decode_token(number)
    assert refused.value.details == {"field": "token", "limit": TOKEN_MAX}


def test_check_tells_topics_and_producers_apart() -> None:
    """As CRC-32 defines it: a client keeps the number for years, and gateways of all versions read it."""
    assert check_of(TOPIC, ProducerId(1)) == 488_815_917
    assert (
        len(
            {check_of(TOPIC, ProducerId(1)), check_of(TOPIC, ProducerId(2)), check_of(TopicId("1" * 32), ProducerId(1))}
        )
        == 3
    )
