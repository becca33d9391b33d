"""`oncelog bench peers`: the same loads on Oncelog, Apache Kafka and Apache Pulsar, on one machine, in both orders."""
