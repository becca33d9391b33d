"""What must be true: the state machines of Oncelog.

Standard library only; no I/O, no clock, no randomness, no logging. A machine takes an event and returns effects; a
shell (a service, or the simulation) performs them and brings their completions back as events.
"""
