"""A gRPC server over TLS: one call with one answer, one with many."""

import concurrent.futures
import pathlib

import grpc

METHODS = {
    "Hello": grpc.unary_unary_rpc_method_handler(lambda request, _context: b"hello " + request),
    "Count": grpc.unary_stream_rpc_method_handler(lambda _request, _context: (b"%d" % n for n in range(1000))),
    "Sum": grpc.stream_unary_rpc_method_handler(lambda requests, _context: b"%d" % sum(map(int, requests))),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor())
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("world.Greeter", METHODS),))
pair = (pathlib.Path("web.key").read_bytes(), pathlib.Path("web.pem").read_bytes())
assert server.add_secure_port("93.184.216.34:50051", grpc.ssl_server_credentials([pair]))
server.start()
server.wait_for_termination()
