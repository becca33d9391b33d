"""The version of this program, and the lowest one. Each process registers with its version.

What older programs cannot read begins at a stored level, which an operator raises once every process knows it
(`core.placement.level`). Until then processes of several versions take part in the cluster.

    8   the first one; records keep the fields that they do not know
    9   entries of clients of Pulsar (`core.formats.pulsar`), and units; record batches of clients of
        Kafka (`core.formats.kafka`), and producers in mode EPOCHED; producers and consumers of
        gateways' clients, and offsets that their groups commit
"""

#: This program's version.
PROCESS_VERSION = 9
#: The lowest version, and the lowest level: no program or cluster of a lower one exists.
FIRST_VERSION = 8
