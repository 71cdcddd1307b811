//! Programs for the sandboxes of tests. Real ones have Python.

/// Defines `Picture(n)`: shown, it is a picture of `n` bytes, which begins like a PNG and goes on with nothing.
pub const PICTURE: &str = "class Picture:\n    \
    def __init__(self, n): self.n = n\n    \
    def __repr__(self): return '<Figure>'\n    \
    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'.ljust(self.n, b'\\0')\n";

/// Sends back what comes to a port, and prints `ready` once it listens.
pub fn echo_server(port: u16) -> [String; 3] {
    let server = format!(
        "import socket\n\
         server = socket.create_server(('127.0.0.1', {port}))\n\
         print('ready', flush=True)\n\
         while True:\n    \
             client, _ = server.accept()\n    \
             while data := client.recv(65536): client.sendall(data)\n    \
             client.close()\n"
    );
    ["python3".to_owned(), "-c".to_owned(), server]
}
