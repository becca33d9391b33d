"""Methods of the ProducerAdmin service; producers.proto describes the fields."""

from oncelog.rpc.methods import unary_of
from oncelog.wire import producers_pb2 as pb

_SERVICE = "/oncelog.wire.v1.ProducerAdmin"
LIST_PRODUCERS = unary_of(f"{_SERVICE}/ListProducers", pb.ListProducersRequest, pb.ListProducersAnswer)
REMOVE_PRODUCER = unary_of(f"{_SERVICE}/RemoveProducer", pb.RemoveProducerRequest, pb.RemoveProducerAnswer)
DESCRIBE_PRODUCER = unary_of(f"{_SERVICE}/DescribeProducer", pb.DescribeProducerRequest, pb.DescribeProducerAnswer)
