//! A registry of a few lines that does what it is told, honest or not.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use images::Reference;

use crate::fixture::TestImage;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    /// How many requests for this path came before.
    pub(crate) earlier: usize,
}

impl Request {
    pub(crate) fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }

    pub(crate) fn range_start(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Whole {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Says that it will send all of `body`, and closes the connection after some of it.
    ClosesHalfway {
        body: Vec<u8>,
        after: usize,
    },
    /// Sends some of `body` and then nothing, for as long as the server lives.
    HangsHalfway {
        body: Vec<u8>,
        after: usize,
    },
    /// Takes the question and says nothing.
    Silence,
    /// Sends zeros for ever.
    Endless,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self::Whole { status, headers: Vec::new(), body: b"{}".to_vec() }
    }

    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Whole { status: 200, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.into()));
        }
        self
    }
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn new(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(handler);
        let (requests, end) = (Arc::clone(&seen), Arc::clone(&ended));
        thread::spawn(move || {
            // Held until the server ends: connections that hang.
            let hanging = Arc::new(Mutex::new(Vec::new()));
            for connection in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (handler, requests, hanging) =
                    (Arc::clone(&handler), Arc::clone(&requests), Arc::clone(&hanging));
                thread::spawn(move || serve(connection.unwrap(), &*handler, &requests, &hanging));
            }
        });
        Self { address, seen, ended }
    }

    /// A registry that has `image` as `app:v1`, but for requests to which `twist` has another answer.
    pub(crate) fn of(
        image: &TestImage,
        twist: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let image = image.clone();
        let contents: HashMap<String, Vec<u8>> =
            image.contents().into_iter().map(|(digest, bytes)| (digest.to_string(), bytes)).collect();
        Self::new(move |request| {
            if let Some(answer) = twist(request) {
                return answer;
            }
            if request.path.contains("/manifests/") {
                return Answer::ok(image.manifest.clone());
            }
            let digest = request.path.rsplit('/').next().unwrap();
            match (contents.get(digest), request.range_start()) {
                (None, _) => Answer::status(404),
                (Some(blob), None) => Answer::ok(blob.clone()),
                (Some(blob), Some(start)) => part(blob, start),
            }
        })
    }

    pub(crate) fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address).parse().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// Paths of blobs that were asked for, and from where on.
    pub(crate) fn blob_requests(&self) -> Vec<(String, Option<usize>)> {
        let requests = self.requests();
        let blobs = requests.iter().filter(|request| request.is_blob());
        blobs
            .map(|request| (request.path.rsplit(':').next().unwrap().to_owned(), request.range_start()))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _gone = TcpStream::connect(self.address);
    }
}

pub(crate) fn part(blob: &[u8], start: usize) -> Answer {
    Answer::Whole { status: 206, headers: Vec::new(), body: blob[start..].to_vec() }
        .header("Content-Range", format!("bytes {start}-{}/{}", blob.len() - 1, blob.len()))
}

fn serve(
    mut connection: TcpStream,
    handler: &Handler,
    seen: &Mutex<Vec<Request>>,
    hanging: &Mutex<Vec<TcpStream>>,
) {
    let Some(request) = read_request(&connection, seen) else { return };
    let answer = handler(&request);
    // Whoever asked may be gone by now.
    let _sent = match answer {
        Answer::Whole { status, headers, body } => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let length = body.len();
            let has_length = headers.to_ascii_lowercase().contains("content-length");
            let length = if has_length { String::new() } else { format!("Content-Length: {length}\r\n") };
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{length}{headers}\r\n");
            connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body))
        }
        Answer::ClosesHalfway { body, after } => send_some(&mut connection, &body, after),
        Answer::HangsHalfway { body, after } => {
            let sent = send_some(&mut connection, &body, after);
            hanging.lock().unwrap().push(connection);
            sent
        }
        Answer::Silence => {
            hanging.lock().unwrap().push(connection);
            Ok(())
        }
        Answer::Endless => {
            let _begun = connection.write_all(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n");
            while connection.write_all(&[b' '; 65536]).is_ok() {}
            Ok(())
        }
    };
}

fn send_some(connection: &mut TcpStream, body: &[u8], after: usize) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    connection.write_all(head.as_bytes())?;
    connection.write_all(&body[..after])?;
    connection.flush()
}

fn read_request(connection: &TcpStream, seen: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
    let mut seen = seen.lock().unwrap();
    let earlier = seen.iter().filter(|request| request.path == path).count();
    let request = Request { path, headers, earlier };
    seen.push(request.clone());
    Some(request)
}
