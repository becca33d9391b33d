"""What `-o json` prints where a command makes its answer itself: `oncelog help json`. Commands of `oncelog admin` print
the answer of the REST interface, which docs/rest.md describes."""

#: {command: its fields}
FIELDS = {
    "produce": (
        "lines (acknowledged in this run), sent, stored, duplicates (acknowledged, but stored before), unverified "
        "(duplicates that may not be stored: their ids are older than all batches that the log remembers for the "
        "producer name), differing (duplicates in batches that differ from the stored ones, as far as the log can "
        "compare them: the file was changed), resumed_from (byte offset, null for a first run), position (byte "
        "offset before which all lines are stored), incomplete (null, or offset and bytes of an unpublished last "
        "line without a newline), seconds, interrupted."
    ),
    "read": (
        "an object for each message: value (value_base64 if it is not UTF-8), producer_name, producer_id (null: "
        "stored without deduplication; without a name: the producer has expired), sequence_id, message_id, "
        "publish_time, index (number of the message in the topic), and, if set, key, event_time_ms and properties; of "
        "a message of a client of Kafka also headers, each with key and value (null, or value_base64). "
        "An encrypted message has a null value and encrypted: keys, algorithm, parameters_base64, batch_index, "
        "batch_count, and, of the first message of its entry, entry_base64 (what the client of Pulsar has sent). "
        "A part that cannot be read is an object with the only field skipped (position, first_index, count, "
        "reason); a part that was trimmed or given up is an object with the only field gap (first_index, "
        "last_index, given_up)."
    ),
    "pipeline audit": (
        "format, verdict (good, violations, incomplete), began_ms, seconds, and for each of topics: topic, "
        "topic_id, verdict, end, first_index, ledgers, ranges, entries, messages, messages_not_deduplicated, "
        "bytes, producers, checks (check, state, violations, compared_with), violations_count, violations "
        "(rule, position, message), not_checked, notes, duplicates_refused (in_log, reported_by_owner, "
        "owner_epoch), takeovers, timeline. With --compare also mirror: compared, missing, doubled, order, "
        "differs, not_copied, not_compared, not_copied_from; null if the other cluster does not have the "
        "topic."
    ),
    "pipeline export": (
        "manifest (null: nothing was new), run, rows, files, bytes, topics (topic, topic_id, from, to, kept_from; "
        "given_up, if there is any after kept_from: a list of first number and end), gone, leftovers (run, files, "
        "bytes), phases (planning, writing, reading_back, committing; in seconds), seconds. With --verify: "
        "manifests, files, rows, bytes, topics (topic, next), problems, ok. With --clean: removed, bytes, foreign "
        "(directories that begin with run= but do not belong to this export; they are kept)."
    ),
    "pipeline import": (
        "topic, found, done (before), new, resumed (files), rows (published now), bytes (of new files), files "
        "(path, rows; those that are new or resumed), seconds."
    ),
}
