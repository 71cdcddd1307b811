//! An index on loopback: answers what it was given, counts what it was asked, and can be switched off.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};

/// One request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    Plain,
    /// The declared length is another.
    Lying(usize),
    /// Each piece of that many bytes needs a permit.
    Stepped(usize, Arc<Semaphore>),
    /// Nothing at all, for ever.
    Silent,
}

impl Reply {
    pub(crate) fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status: 200, headers, body: body.into(), way: Way::Plain }
    }

    pub(crate) fn html(body: impl Into<Vec<u8>>) -> Self {
        Self::new("text/html", body)
    }

    pub(crate) fn file(body: impl Into<Vec<u8>>) -> Self {
        Self::new("application/octet-stream", body)
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::html("no") }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::status(302).header("location", to)
    }

    pub(crate) fn silent() -> Self {
        Self { way: Way::Silent, ..Self::html("") }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Says that the body is so long, and ends the connection after the real one.
    pub(crate) fn lying(mut self, length: usize) -> Self {
        self.way = Way::Lying(length);
        self
    }

    /// Sends `size` bytes for each permit.
    pub(crate) fn stepped(mut self, size: usize, permits: &Arc<Semaphore>) -> Self {
        self.way = Way::Stepped(size, Arc::clone(permits));
        self
    }
}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

pub(crate) struct Index {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Drop for Index {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Index {
    pub(crate) async fn start(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Handler> = Arc::new(handler);
        let seen = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            // Dropped with this task, and their connections with them.
            let mut clients = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                clients.spawn(converse(stream, Arc::clone(&handler), Arc::clone(&seen)));
            }
        });
        Self { address, asked, task }
    }

    /// Answers by path, anything else with 404.
    pub(crate) async fn of(pages: impl IntoIterator<Item = (String, Reply)>) -> Self {
        let pages: BTreeMap<String, Reply> = pages.into_iter().collect();
        Self::start(move |asked| pages.get(&asked.path).cloned().unwrap_or_else(|| Reply::status(404))).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.path).collect()
    }

    /// From now on connections are refused. The port stays taken while the result lives, so that nobody else answers
    /// there.
    pub(crate) async fn stop(mut self) -> TcpSocket {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        // A child of another test that is not exec'ed yet still has the listener.
        let taken = async {
            while socket.bind(self.address).is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), taken).await.unwrap();
        TcpStream::connect(self.address).await.unwrap_err();
        socket
    }
}

async fn converse(stream: TcpStream, handler: Arc<Handler>, seen: Arc<Mutex<Vec<Asked>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await {
        seen.lock().unwrap().push(asked.clone());
        let reply = handler(&asked);
        if answer(stream.get_mut(), reply).await.is_none() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_ascii_lowercase(), value.to_owned())),
            None => return Some(Asked { path, headers }),
        }
    }
}

/// `None` when the connection is over.
async fn answer(stream: &mut TcpStream, reply: Reply) -> Option<()> {
    if matches!(reply.way, Way::Silent) {
        std::future::pending::<()>().await;
    }
    let length = match reply.way {
        Way::Lying(length) => length,
        _ => reply.body.len(),
    };
    let mut head = format!("HTTP/1.1 {} Said\r\n", reply.status);
    if reply.status != 304 {
        head.push_str(&format!("content-length: {length}\r\n"));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    if reply.status == 304 {
        return Some(());
    }
    match reply.way {
        Way::Stepped(size, permits) => {
            for piece in reply.body.chunks(size) {
                permits.acquire().await.ok()?.forget();
                stream.write_all(piece).await.ok()?;
            }
            Some(())
        }
        Way::Lying(_) => {
            stream.write_all(&reply.body).await.ok()?;
            None
        }
        Way::Plain | Way::Silent => stream.write_all(&reply.body).await.ok(),
    }
}
