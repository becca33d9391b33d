"""The oracles: what every history must satisfy. They know the cores' formats, and nothing of faults or of who ran what.

The simulation feeds them the history of a run and the entries of its storage nodes; demo, chaos and audit feed them
real ones. `Violation` names the rule that was broken.
"""
