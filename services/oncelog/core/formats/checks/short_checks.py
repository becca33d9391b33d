"""Which checks of entries of gateways' clients are short: everything else that an owner serves waits for them.

Each message is checked in Python, so a batch may take long. It is checked in a thread then, which costs as much as the
check of most batches. Short is what has at most SHORT_COUNT_MAX messages, and

    at most SHORT_BYTES_MAX, also without its compression; or
    more, but no compression and only plain messages (`plain`), which take less than 1 us each, however large they are
"""

SHORT_BYTES_MAX = 64 * 1024
SHORT_COUNT_MAX = 1000
