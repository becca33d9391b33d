"""What an owner withholds from its consumers until it has proved that it is the current one."""

import pytest

from oncelog.core.delivery import delivery_gate
from oncelog.core.delivery.delivery_gate import DeliveryGate, GateVerdict, Needs
from oncelog.core.delivery.store_binding.events import AnswerEffects
from oncelog.core.ids import ConsumerNumber
from tests.core.delivery.bound_log import LOG

SESSION_MS = 3_000
YOUNG_MS, OLD_MS = 1_499, 1_500


def gate() -> DeliveryGate[str]:
    return DeliveryGate(session_timeout_ms=SESSION_MS)


def test_reports_go_out_while_the_proof_is_young() -> None:
    """Then no process can have been given the topic."""
    own = gate()
    assert own.report("messages", Needs.YOUNG_PROOF, proof_age_ms=YOUNG_MS) is GateVerdict.SEND
    assert own.release() == []


@pytest.mark.hazard("deposed-owner-delivers")
def test_delivery_with_an_old_proof_begins_one_and_waits_for_it() -> None:
    """Half a session after the last proof another process may soon own the topic."""
    own = gate()
    assert own.report("messages", Needs.YOUNG_PROOF, proof_age_ms=OLD_MS) is GateVerdict.PROVE
    assert own.release() == ["messages"]


def test_answer_needs_no_proof() -> None:
    """The acknowledgement is durable, whoever owns the topic."""
    assert gate().report("answer", Needs.NOTHING, proof_age_ms=float("inf")) is GateVerdict.SEND


@pytest.mark.hazard("deposed-owner-delivers")
def test_what_follows_a_waiting_delivery_waits_behind_it() -> None:
    """Also an answer, and also after the watch has renewed the proof: consumers get reports in their order."""
    own = gate()
    own.report("first", Needs.YOUNG_PROOF, proof_age_ms=OLD_MS)
    assert own.report("answer", Needs.NOTHING, proof_age_ms=OLD_MS) is GateVerdict.WAIT
    assert own.report("second", Needs.YOUNG_PROOF, proof_age_ms=0) is GateVerdict.WAIT
    assert own.release() == ["first", "answer", "second"]
    assert own.report("third", Needs.YOUNG_PROOF, proof_age_ms=0) is GateVerdict.SEND


@pytest.mark.hazard("log-known-by-a-deposed-owner")
def test_answer_about_the_log_waits_for_a_proof_of_its_own() -> None:
    """A young proof does not say what another owner has stored since."""
    answer = AnswerEffects(ConsumerNumber(1), 1, LOG)
    own = DeliveryGate[AnswerEffects](session_timeout_ms=SESSION_MS)
    assert own.report(answer, delivery_gate.needs_of(answer), proof_age_ms=0) is GateVerdict.PROVE
    assert own.release() == [answer]
    assert not own.is_waiting


@pytest.mark.hazard("log-known-by-a-deposed-owner")
def test_answer_about_the_log_waits_for_a_proof_that_begins_after_it() -> None:
    """The one that is under way began before it. What follows the answer waits behind it."""
    own = gate()
    own.report("first", Needs.YOUNG_PROOF, proof_age_ms=OLD_MS)
    own.report("second", Needs.YOUNG_PROOF, proof_age_ms=OLD_MS)
    assert own.report("known", Needs.NEW_PROOF, proof_age_ms=OLD_MS) is GateVerdict.WAIT
    assert own.report("third", Needs.NOTHING, proof_age_ms=0) is GateVerdict.WAIT
    assert own.release() == ["first", "second"]
    assert own.is_waiting
    assert own.release() == ["known", "third"]
    assert not own.is_waiting
