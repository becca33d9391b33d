"""`oncelog chaos`: faults by a seeded schedule on a real cluster under load, and the proof that nothing was lost."""
