"""Methods of the GroupOffsets service; group_offsets.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import group_offsets_pb2 as pb

#: Topics of one call: with the longest names and metadata they fit into a request.
GROUP_TOPICS_MAX = 200

_SERVICE = "/oncelog.wire.v1.GroupOffsets"
COMMIT_OFFSETS = unary_of(f"{_SERVICE}/CommitOffsets", pb.CommitOffsetsRequest, pb.GroupOffsetsAnswer)
FETCH_OFFSETS = unary_of(f"{_SERVICE}/FetchOffsets", pb.FetchOffsetsRequest, pb.GroupOffsetsAnswer)
RAISE_GENERATIONS = unary_of(f"{_SERVICE}/RaiseGenerations", pb.RaiseGenerationsRequest, pb.GroupOffsetsAnswer)
DELETE_OFFSETS = unary_of(f"{_SERVICE}/DeleteOffsets", pb.DeleteOffsetsRequest, pb.GroupOffsetsAnswer)
