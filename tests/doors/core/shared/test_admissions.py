"""How many connections a door takes, of whom."""

from oncelog_doors.core.shared.admissions import ADDRESSES_MAX, AdmissionLimits, Admissions

A, B = "10.0.0.1", "10.0.0.2"
FOUR = AdmissionLimits(connections_max=4)


def admit(admissions: Admissions, address: str) -> bool:
    if admissions.refusal_of_address(address, 0) is not None:
        return False
    admissions.admitted(address)
    return True


def test_one_address_has_half_of_the_places() -> None:
    """It does not keep the others out."""
    admissions = Admissions(FOUR)
    assert [admit(admissions, A) for _ in range(3)] == [True, True, False]
    assert [admit(admissions, address) for address in (B, B, "10.0.0.3")] == [True, True, False]
    admissions.gone(A, None)
    assert admit(admissions, A)


def test_one_role_has_half_of_the_places() -> None:
    """From whatever addresses."""
    admissions = Admissions(FOUR)
    for _ in range(2):
        assert admissions.refusal_of_role("importer") is None
        admissions.proved("importer")
    assert "role importer has 2 connections" in str(admissions.refusal_of_role("importer"))
    assert admissions.refusal_of_role("billing") is None
    admissions.admitted(A)
    admissions.gone(A, "importer")
    assert admissions.refusal_of_role("importer") is None


def test_address_that_fails_is_not_heard_for_a_minute() -> None:
    """16 failures within a minute; others are heard."""
    admissions = Admissions()
    for number in range(16):
        assert admissions.refusal_of_address(A, 15_000) is None
        admissions.failed(A, number * 1000)
    assert "failed within a minute" in str(admissions.refusal_of_address(A, 15_000))
    assert admissions.refusal_of_address(B, 15_000) is None
    assert admissions.refusal_of_address(A, 59_999) is not None
    assert admissions.refusal_of_address(A, 60_000) is None
    admissions.failed(A, 60_500)
    assert admissions.refusal_of_address(A, 60_999) is not None


def test_failures_of_few_addresses_are_kept() -> None:
    """The one that was quiet for longest is forgotten."""
    admissions = Admissions()
    for _ in range(16):
        admissions.failed(A, 0)
    for number in range(ADDRESSES_MAX - 1):
        admissions.failed(f"{number}", 1)
    assert admissions.refusal_of_address(A, 1) is not None
    admissions.failed("late", 1)
    assert admissions.refusal_of_address(A, 1) is None
