"""Planted bugs of producers and consumers for the clients of gateways. Tests of the core find them: of gateways the
simulation has only consumers of whole entries."""

from collections.abc import Callable
from typing import Any

from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.wanted import WantedConsumer
from oncelog.core.publishing import opening_rules
from oncelog.core.publishing.client_order import TokenVerdict
from oncelog.core.publishing.held_names import HeldNames
from oncelog.core.publishing.opening_rules import OpeningRules
from oncelog.core.publishing.sessions import Sessions
from oncelog.core.sdk.consumer.entries import ReceivedEntries
from oncelog.core.sdk.producer.session import ProducerSession
from tests.core.delivery.test_delivery_stories import test_story
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
from tests.core.sdk.test_entry_session import (
    test_new_stream_has_the_permits_that_are_neither_used_nor_taken,
    test_oldest_message_of_the_client_is_reported_as_begun,
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
    Mutant(
        "entries are cut at the permits", "entry-above-the-permits", None,
        ((Credit, "of", lambda self, count: min(count, self.left)),),
        core_test=test_story,
        core_arguments=("whole_entries: Shared consumers take turns with whole entries, however little each takes",),
    ),
    Mutant(
        "messages that were handed out use no permits of the next stream", "entry-above-the-permits", None,
        ((ReceivedEntries, "credit", property(lambda self: (self.left, max(0, self.permitted - self._earlier)))),),
        core_test=test_new_stream_has_the_permits_that_are_neither_used_nor_taken,
    ),
    Mutant(
        "all messages of a client are begun", "wrong-delivery-count", None,
        ((ReceivedEntries, "reported_begun", lambda self: list(self.begun)),),
        core_test=test_oldest_message_of_the_client_is_reported_as_begun,
    ),
    Mutant(
        "the gateway of an exclusive consumer is not asked", "half-open-consumer", None,
        ((WantedConsumer, "waits", _always(False)),),
        core_test=test_story,
        core_arguments=("wanted: A gateway that does not answer has lost its client",),
    ),
)  # fmt: skip
