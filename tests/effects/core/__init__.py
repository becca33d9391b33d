"""The pure cores of effects: events in, effects out."""
