"""The events and the effects of a topic's core, which all its parts share."""
