"""What an owner may check while everything else that it serves waits.

A thread that computes in Python holds up all others, so it helps little: a change of threads costs as much as the check
of most batches, and two threads take turns of milliseconds. But a batch of Kafka or Pulsar may take seconds, because
each of its messages is read, and a few KiB may be compressed from many MiB. Short is

    what has at most SHORT_BYTES_MAX, also without its compression
    what is not compressed and has at most SHORT_COUNT_MAX messages, all of them plain: each takes less than 1 us
"""

SHORT_BYTES_MAX = 64 * 1024
SHORT_COUNT_MAX = 1024
