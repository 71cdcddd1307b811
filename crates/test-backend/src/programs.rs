//! Programs for the sandboxes of tests. Real ones have Python.

/// Defines `Picture(n)`: shown, it is a picture of `n` bytes, which begins like a PNG and goes on with nothing.
pub const PICTURE: &str = "class Picture:\n    \
    def __init__(self, n): self.n = n\n    \
    def __repr__(self): return '<Figure>'\n    \
    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'.ljust(self.n, b'\\0')\n";

/// Sends back what comes to a port, and prints `ready` once it listens.
pub fn echo_server(port: u16) -> [String; 3] {
    echo_server_on("127.0.0.1", port)
}

/// The same on another address.
pub fn echo_server_on(address: &str, port: u16) -> [String; 3] {
    let family = family(address);
    let server = format!(
        "import socket\n\
         server = socket.create_server(('{address}', {port}), family={family})\n\
         print('ready', flush=True)\n\
         while True:\n    \
             client, _ = server.accept()\n    \
             while data := client.recv(65536): client.sendall(data)\n    \
             client.close()\n"
    );
    ["python3".to_owned(), "-c".to_owned(), server]
}

/// Sends back every datagram that comes to a port, behind `word`, and prints `ready` once it listens.
pub fn echo_datagrams_on(address: &str, port: u16, word: &str) -> [String; 3] {
    let family = family(address);
    let server = format!(
        "import socket\n\
         server = socket.socket({family}, socket.SOCK_DGRAM)\n\
         server.bind(('{address}', {port}))\n\
         print('ready', flush=True)\n\
         while True:\n    \
             data, client = server.recvfrom(65536)\n    \
             server.sendto(b'{word} ' + data, client)\n"
    );
    ["python3".to_owned(), "-c".to_owned(), server]
}

fn family(address: &str) -> &'static str {
    if address.contains(':') { "socket.AF_INET6" } else { "socket.AF_INET" }
}
