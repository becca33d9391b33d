"""`oncelog demo`: a file published effectively once while processes are killed, and the proof, line by line."""
