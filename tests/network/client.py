"""What programs inside see of a network that edge.py serves. Prints one line for each attempt; argument: 4 or 6."""
import errno, socket, sys, time

v6 = sys.argv[1] == "6"
family = socket.AF_INET6 if v6 else socket.AF_INET
outside = "2606:4700::1" if v6 else "93.184.216.34"
here = "::1" if v6 else "127.0.0.1"


def attempt(name, work):
    began = time.monotonic()
    try:
        answer = work()
    except OSError as error:
        answer = errno.errorcode.get(error.errno, str(error))
    took = time.monotonic() - began
    print(name, answer, "at once" if took < 0.5 else "late", flush=True)


def tcp(address, port, timeout=10):
    with socket.socket(family) as one:
        one.settimeout(timeout)
        one.connect((address, port))
        one.sendall(b"hello")
        return one.recv(200).decode()


def udp(address, port):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(2)
        one.connect((address, port))
        one.send(b"hello")
        return one.recv(200).decode()


def own_server():
    """A server of the sandbox's own gets what is for it, and nothing of what is for outside."""
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("::" if v6 else "0.0.0.0", 443))
        server.listen()
        answer = tcp(outside, 443)
        with socket.create_connection((here, 443), 2) as client:
            accepted, peer = server.accept()
            accepted.send(b"mine")
            return answer + " " + client.recv(4).decode()


def spoofed():
    """A foreign source address gets no answer."""
    with socket.socket(family) as one:
        one.settimeout(0.2)
        one.bind((outside, 0))
        one.connect((outside, 443))
        return "connected"


attempt("tcp", lambda: tcp(outside, 443))
attempt("refused", lambda: tcp(outside, 81))
attempt("silent", lambda: tcp(outside, 9, 0.1))
attempt("udp", lambda: udp(outside, 53))
attempt("unreachable", lambda: udp(outside, 123))
attempt("nobody here", lambda: tcp(here, 4444))
attempt("proxy's port here", lambda: tcp(here, 61443))
attempt("own server", own_server)
attempt("spoofed", spoofed)
