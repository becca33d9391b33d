"""`oncelog read`: the messages of a topic, from any place, to the end of now or on and on."""
