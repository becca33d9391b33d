"""The same small program with each client library of Pulsar: it does what it reads, and prints what it is answered.

URL TOPIC as arguments, then lines on standard input; values and tags have no spaces:

open NAME COUNT TIMEOUT_MS   a producer; so many messages to a batch, 1: none       opened LAST | error WHAT
                             and large messages in chunks
send TAG ID VALUE SIZE       without waiting; ID -: the library counts; padded      sent TAG PLACE | failed TAG WHAT
                             with blanks to SIZE
read                         the whole topic, with a Reader; without the blanks     read VALUE ...
consume QUEUE                a shared consumer from the first message on; so many
                             messages wait in the library                           consuming | error WHAT
receive MS VALUE ...         until these have come, or none comes for so long;
                             MS 0: no limit                                         received VALUE ...
acknowledge VALUE ...        received messages, one after the other, each with a
                             receipt if the library has them                        acknowledged | error WHAT
close                        the consumer                                           closed
"""
