"""The hazards of Pulsar's clients at a door: a part of `hazards`. Pn: its number in the design of the door."""

from tests.tidy.hazard import Hazard

PULSAR_HAZARDS = {
    "lookup-that-fails": Hazard(
        "P26. A look-up is answered that the service is not ready. The Java client closes the connection, and with it "
        "all of its producers.",
        "The answer to a look-up is a constant.",
    ),
    "transactions-retried-for-ever": Hazard(
        "P27. A client wants transactions, and is answered that their coordinator is not found. It asks again for "
        "ever.",
        "The topic of coordinators has no partitions, and requests for transactions are answered with 22.",
    ),
    "limit-below-a-waiting-message": Hazard(
        "P30. A C++ client keeps the largest size of a message for its whole process. A door tells it a smaller size "
        "than it assumed, and a message that waits is failed without being sent.",
        "No client is told less than 5 MiB, without what the log adds.",
    ),
    "error-name-in-a-sentence": Hazard(
        "P38. The Go client searches the text of an error for the names of errors. A sentence that names one, or a "
        "topic of that name, ends the producer or consumer.",
        "Names of errors are taken apart in each sentence.",
    ),
}
