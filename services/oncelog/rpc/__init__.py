"""The network layer: codecs between messages and core values, error codes, servers and channels."""

import os

# gRPC's C core writes plain lines to stderr, even when a client merely disconnects; our logs are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
