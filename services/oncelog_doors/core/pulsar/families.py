"""Which client library is connected: they speak the same protocol, and react to errors in different ways.

Python and Node use the C++ library. Some versions before 3.0 say their number alone, which does not show the library:
they are unknown, and get the answers that are safe for all.
"""

from enum import Enum


class ClientFamily(Enum):
    JAVA = "java"
    CPP = "cpp"
    GO = "go"
    UNKNOWN = "unknown"

    @property
    def counts_openings(self) -> bool:
        """Whether each PRODUCER of one producer has a higher epoch than the one before. In other families an equal
        epoch proves nothing, and the later PRODUCER wins."""
        return self is not ClientFamily.UNKNOWN

    @property
    def fails_one_message(self) -> bool:
        """Whether a SEND_ERROR with code 22 fails exactly one batch. In the others SEND_ERROR ends the process (C++,
        with 9), silences the producer (Go, with 22), or makes the whole connection send again for ever."""
        return self is ClientFamily.JAVA

    @property
    def knows_consumer_before_flow(self) -> bool:
        """Whether a consumer hears what comes directly behind the answer to its SUBSCRIBE. Go's registers it after the
        answer, and drops what comes before."""
        return self is not ClientFamily.GO

    @property
    def seeks_to_chunks(self) -> bool:
        """Whether it may seek to the id of a chunk that is of no message. Go's drops and acknowledges all that has a
        lower id than the sought one."""
        return self in (ClientFamily.JAVA, ClientFamily.CPP)


#: {how client_version begins: the family}
_FAMILIES = {
    "Pulsar-Java-": ClientFamily.JAVA,
    "Pulsar-CPP-": ClientFamily.CPP,
    "Pulsar-Go-": ClientFamily.GO,
    "Pulsar Go ": ClientFamily.GO,
}


def family_of(client_version: str) -> ClientFamily:
    """client_version: as CONNECT has it, such as Pulsar-CPP-v4.2.0. Applications may add a description behind it."""
    return next(
        (family for start, family in _FAMILIES.items() if client_version.startswith(start)), ClientFamily.UNKNOWN
    )
