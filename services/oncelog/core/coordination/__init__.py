"""Who owns a topic, where it is placed, and which producer ids are leased."""
