"""Stands for the editor: connects to the server inside through the SOCKS port of `ssh -D`, and holds a WebSocket open.

Arguments: SOCKS port, port inside, token, commit.
"""

import os
import socket
import struct
import sys
import threading

socks, inside, token, commit = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
TIMEOUT = 60


def connect():
    stream = socket.create_connection(("127.0.0.1", socks), TIMEOUT)
    stream.sendall(b"\x05\x01\x00")
    assert read(stream, 2) == b"\x05\x00"
    stream.sendall(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + struct.pack(">H", inside))
    assert read(stream, 10)[1] == 0, "the port inside was refused"
    return stream


def read(stream, length):
    got = b""
    while len(got) < length:
        piece = stream.recv(length - len(got))
        assert piece, f"the connection ended after {got!r}"
        got += piece
    return got


def head(stream):
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        got += read(stream, 1)
    return got


def upgrade(shown):
    stream = connect()
    request = f"GET /stable?reconnectionToken=x&tkn={shown} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    request += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    stream.sendall(request.encode())
    return stream, head(stream)


with connect() as asking:
    asking.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"200" in head(asking)
    assert commit.encode() in asking.recv(4096)

assert b" 403 " in upgrade("wrong")[1]
# The editor has several connections at once: one for itself, one for extensions, one for each forwarded port.
streams = []
for _ in range(4):
    stream, answer = upgrade(token)
    assert answer.startswith(b"HTTP/1.1 101") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer, answer
    streams.append(stream)
for stream in streams:
    sent = os.urandom(3_000_000)
    sending = threading.Thread(target=stream.sendall, args=(sent,))
    sending.start()
    assert read(stream, len(sent)) == sent
    sending.join()
    stream.close()
