"""The same small program with each client library of Pulsar: it does what it reads, and prints what it is answered.

URL TOPIC as arguments, then lines on standard input; values and tags have no spaces:

open NAME COUNT TIMEOUT_MS   a producer; so many messages to a batch, 1: none       opened LAST | error WHAT
send TAG ID VALUE            without waiting; ID -: the library counts              sent TAG PLACE | failed TAG WHAT
read                         the whole topic, with a Reader                         read VALUE ...
"""
