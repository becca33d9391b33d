"""Each core by its events and effects: no process, no clock, no wait."""
