"""A tiny edge for tests: serves the sockets of one sandbox's network, and decides by the port of the destination.

Usage: edge.py FIRST COUNT: the descriptors FIRST, FIRST+1, ... in the order of `NetworkSockets`.

TCP 443  the connection begins; one line is echoed with the destination that the kernel reports
TCP 81   refused
TCP 9    not answered
UDP 53   answered with the destination and the payload
other    UDP: port unreachable
"""
import selectors, socket, struct, sys

RECEIVED_DESTINATION_4, RECEIVED_DESTINATION_6 = 20, 74
SYN, RST, ACK = 0x02, 0x04, 0x10


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Packet:
    """A packet of either version, taken apart."""

    def __init__(self, data):
        self.version = data[0] >> 4
        if self.version == 4:
            self.head, self.rest = data[: (data[0] & 15) * 4], data[(data[0] & 15) * 4 :]
            self.source, self.to = self.head[12:16], self.head[16:20]
        else:
            self.head, self.rest = data[:40], data[40:]
            self.source, self.to = self.head[8:24], self.head[24:40]
        self.source_port, self.port = struct.unpack("!HH", self.rest[:4])


def headed(version, protocol, source, to, rest):
    if version == 4:
        return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0, source, to) + rest
    return struct.pack("!IHBB16s16s", 6 << 28, len(rest), protocol, 64, source, to) + rest


def summed(version, protocol, source, to, rest, at):
    """A payload with its checksum, at an offset."""
    rest = rest[:at] + b"\0\0" + rest[at + 2 :]
    pseudo = source + to + struct.pack("!II", len(rest), protocol)
    return rest[:at] + struct.pack("!H", checksum(pseudo + rest) or 0xFFFF) + rest[at + 2 :]


class Edge:
    def __init__(self, first, count):
        kinds = ["tcp", "udp", "raw"]
        versions = [4, 6] if count == 7 else [4]
        names = [(kind, version) for kind in kinds for version in versions] + [("syn", 0)]
        assert len(names) == count, count
        self.sockets = {name: socket.socket(fileno=first + number) for number, name in enumerate(names)}
        self.select = selectors.DefaultSelector()
        for name, one in self.sockets.items():
            if name[0] != "raw":
                self.select.register(one, selectors.EVENT_READ, name)

    def serve(self):
        print("ready", flush=True)
        while True:
            for key, _ in self.select.select():
                kind, version = key.data
                getattr(self, kind)(key.fileobj, version)

    def send(self, version, to, data):
        address = socket.inet_ntop(socket.AF_INET if version == 4 else socket.AF_INET6, to)
        self.sockets["raw", version].sendto(data, (address, 0))

    def syn(self, one, _version):
        packet = Packet(one.recv(256))
        print("syn", packet.port, flush=True)
        if packet.port == 443:
            rest = summed(packet.version, 6, packet.source, packet.to, packet.rest, 16)
            # Its length is that of a whole packet, and its addresses stay.
            self.send(packet.version, packet.to, packet.head + rest)
        elif packet.port == 81:
            sequence = struct.unpack("!I", packet.rest[4:8])[0] + 1 & 0xFFFFFFFF
            rest = struct.pack("!HHIIBBHHH", packet.port, packet.source_port, 0, sequence, 0x50, RST | ACK, 0, 0, 0)
            rest = summed(packet.version, 6, packet.to, packet.source, rest, 16)
            self.send(packet.version, packet.source, headed(packet.version, 6, packet.to, packet.source, rest))

    def tcp(self, one, _version):
        accepted, peer = one.accept()
        accepted.setblocking(True)
        address, port = accepted.getsockname()[:2]
        line = accepted.recv(100)
        accepted.sendall(f"{address} {port} ".encode() + line)
        accepted.close()

    def udp(self, one, version):
        payload, control, _flags, peer = one.recvmsg(2000, 200)
        for _level, kind, data in control:
            if kind in (RECEIVED_DESTINATION_4, RECEIVED_DESTINATION_6):
                port = struct.unpack("!H", data[2:4])[0]
                to = data[4:8] if version == 4 else data[8:24]
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        source = socket.inet_pton(family, peer[0])
        if port == 53:
            answer = f"{socket.inet_ntop(family, to)} {port} ".encode() + payload
            rest = struct.pack("!HHHH", port, peer[1], 8 + len(answer), 0) + answer
            rest = summed(version, 17, to, source, rest, 6)
            self.send(version, source, headed(version, 17, to, source, rest))
        else:
            # Port unreachable, with the beginning of the datagram that it is about.
            sent = struct.pack("!HHHH", peer[1], port, 8 + len(payload), 0) + payload
            sent = headed(version, 17, source, to, sent)[:100]
            if version == 4:
                rest = struct.pack("!BBHI", 3, 3, 0, 0) + sent
                rest = rest[:2] + struct.pack("!H", checksum(rest)) + rest[4:]
                self.send(version, source, headed(version, 1, to, source, rest))
            else:
                rest = summed(version, 58, to, source, struct.pack("!BBHI", 1, 4, 0, 0) + sent, 2)
                self.send(version, source, headed(version, 58, to, source, rest))


Edge(int(sys.argv[1]), int(sys.argv[2])).serve()
