"""The lab itself: its verdicts must be able to fail, and its commands keep what users see."""
