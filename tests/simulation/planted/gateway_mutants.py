"""Planted bugs of openings for the clients of gateways. The simulation has no gateways: tests of the core find them."""

from collections.abc import Callable
from typing import Any

from oncelog.core.publishing import opening_rules
from oncelog.core.publishing.client_order import TokenVerdict
from oncelog.core.publishing.held_names import HeldNames
from oncelog.core.publishing.opening_rules import OpeningRules
from oncelog.core.publishing.sessions import Sessions
from oncelog.core.sdk.producer.session import ProducerSession
from tests.core.publishing.gateways.test_gateway_openings import (
    test_client_with_its_token_goes_on_as_the_same_instance,
    test_last_sequence_id_is_told_when_writes_in_flight_have_settled,
    test_older_generation_is_fenced,
)
from tests.core.publishing.gateways.test_held_names import (
    test_gateway_of_the_holder_is_asked_before_a_refusal,
    test_late_opening_does_not_take_a_kept_name,
    test_name_of_a_broken_session_is_kept_for_its_token,
)
from tests.core.sdk.test_gateway_session import test_gateway_opens_no_superseded_session_again
from tests.simulation.planted.planted_bug import Mutant


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _opened_again(session: ProducerSession, event: Any) -> Any:
    """Every end of a session counts as one that passes."""
    return session._over(event.error) if event.session == session.session else []


GATEWAY_MUTANTS = (
    Mutant(
        "tokens are ignored", "gateway-opens-anew", None,
        ((OpeningRules, "verdict_on", _always(TokenVerdict.OF_ANOTHER)),),
        core_test=test_client_with_its_token_goes_on_as_the_same_instance,
    ),
    Mutant(
        "tokens of older generations are not refused", "zombie-takes-its-name-back", None,
        ((OpeningRules, "fenced", _always(None)),),
        core_test=test_older_generation_is_fenced,
    ),
    Mutant(
        "a former session lives while its writes settle", "gateways-hold-one-producer", None,
        ((Sessions, "end_of", _always(None)),),
        core_test=test_last_sequence_id_is_told_when_writes_in_flight_have_settled,
    ),
    Mutant(
        "epochs are ignored", "sessions-end-each-other", None,
        ((opening_rules, "comes_late", _always(False)),),
        core_test=test_late_opening_does_not_take_a_kept_name,
    ),
    Mutant(
        "superseded sessions are opened again", "sessions-end-each-other", None,
        ((ProducerSession, "_session_ended", _opened_again),),
        core_test=test_gateway_opens_no_superseded_session_again,
    ),
    Mutant(
        "the holder of a name is not asked", "half-open-session", None,
        ((HeldNames, "is_there", _always(True)),),
        core_test=test_gateway_of_the_holder_is_asked_before_a_refusal,
    ),
    Mutant(
        "names are not kept", "name-lost-by-a-restart", None,
        ((HeldNames, "keeps", _always(False)),),
        core_test=test_name_of_a_broken_session_is_kept_for_its_token,
    ),
)  # fmt: skip
