"""What a client of Pulsar is answered: names, tokens, receipts, refusals. It knows no bytes and no protobuf."""
