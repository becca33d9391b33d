"""Limits and times of groups. Requests beyond a limit are refused, and the reason names it."""

from oncelog.core.ids import Generation

#: A session timeout outside of this is refused: brokers of Kafka 2.4 have the same bounds.
SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX = 6_000, 30 * 60_000
#: A group without members waits so long after each new member for another one, before its first rebalance ends. Kafka
#: waits for 3 s by default, a test cluster for 0.
INITIAL_DELAY_MS = 1_000
#: After a coordinator begins, members of the former one show themselves for so long: four heartbeats of most clients.
CLAIMS_MS = 12_000
#: And a group waits so long after each of them for another one: a little more than one heartbeat of most clients.
CLAIM_DELAY_MS = 3_500
#: A call that comes later than this after it was due shows that this process did not run.
STALL_MS = 1_000

#: Kafka has 32 bits with a sign for it.
GENERATION_MAX = Generation(2**31 - 1)
#: Each has a subscription of the coordinator's topic, which has so many.
GROUPS_MAX = 1_000
#: Of one group, together with ids that were given and have not joined yet.
MEMBERS_MAX = 1_000
#: Of one member.
PROTOCOLS_MAX = 100
#: Of a protocol type, the name of a protocol, a client id or an instance id, in UTF-8. Kafka takes 32,767, and those of
#: clients are far shorter: the longest are names of applications with a UUID.
NAME_BYTES_MAX = 1_024
#: What this process needs beside the bytes of a client: for a member, and for each protocol that it offers.
MEMBER_BYTES, PROTOCOL_BYTES = 1_000, 200
#: Of one group: metadata, names and ids of its members, with the two above.
METADATA_BYTES_MAX = 2 * 1024 * 1024
#: Of one group.
ASSIGNMENT_BYTES_MAX = 1024 * 1024
#: Of all groups of one coordinator: metadata and assignments.
COORDINATOR_BYTES_MAX = 256 * 1024 * 1024
