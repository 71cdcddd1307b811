//! Small servers of a world. `warren`'s own tests use them too.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Serves each connection by a thread of its own.
pub(crate) fn serve(at: &str, each: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(at).unwrap_or_else(|error| panic!("{at}: {error}"));
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, each) = (stream.unwrap(), each.clone());
            thread::spawn(move || each(stream));
        }
    });
    address
}

/// Sends back what comes, and ends when the client ends.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

/// An HTTP server that says on every request who it is and what it was asked for; keeps connections alive.
pub(crate) fn http(name: &'static str) -> impl Fn(TcpStream) + Clone + Send + 'static {
    move |mut stream| {
        let mut bytes = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let end = loop {
                if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                    break at + 4;
                }
                match stream.read(&mut buffer) {
                    Ok(read @ 1..) => bytes.extend(&buffer[..read]),
                    _ => return,
                }
            };
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            bytes.drain(..end);
            let body = format!("{name} heard: {}\n{head}", head.lines().next().unwrap_or_default());
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
