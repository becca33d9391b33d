"""How bytes cross: the codec between messages and core values, status codes, server and channel."""

import os

# gRPC's C core writes lines of its own kind to stderr, also about clients that merely go away; ours are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
