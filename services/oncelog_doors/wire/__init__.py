"""What crosses the network: generated, from proto/oncelog_doors/wire and from the definitions of Kafka's messages."""
