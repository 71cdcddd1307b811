//! Questions to the servers outside. They hold nothing of the sandbox's but the name and the type.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

/// How often the list of servers is gone through.
const ROUNDS: usize = 2;
/// Most servers that are asked.
const MAX_SERVERS: usize = 3;
/// Largest answer in a datagram; what is longer comes over TCP. The usual value against fragments.
const PAYLOAD: u16 = 1232;

/// The first answer of a server; each may take as long as `patience`.
pub(crate) async fn ask(servers: &[SocketAddr], query: &Query, patience: Duration) -> io::Result<Message> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "there is none to ask");
    for _ in 0..ROUNDS {
        for server in servers.iter().take(MAX_SERVERS) {
            match timeout(patience, ask_one(*server, query)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => failure = error,
                Err(_elapsed) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
    }
    Err(failure)
}

async fn ask_one(server: SocketAddr, query: &Query) -> io::Result<Message> {
    let (id, question) = question(query)?;
    let answer = by_datagram(server, &question, id, query).await?;
    if answer.metadata.truncation { by_stream(server, &question, id, query).await } else { Ok(answer) }
}

fn question(query: &Query) -> io::Result<(u16, Vec<u8>)> {
    let id = u16::try_from(getrandom::u32().map_err(io::Error::other)? >> 16).unwrap_or_default();
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    // In lower case: a sandbox that chooses the case of letters could send a bit with each.
    message.add_query(Query::query(query.name.to_lowercase(), query.query_type));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    message.set_edns(edns);
    Ok((id, message.to_vec().map_err(io::Error::other)?))
}

async fn by_datagram(server: SocketAddr, question: &[u8], id: u16, query: &Query) -> io::Result<Message> {
    let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A socket for each question: the kernel draws its port.
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; usize::from(PAYLOAD) * 2];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = answer_in(&buffer[..length], id, query) {
            return Ok(answer);
        }
    }
}

async fn by_stream(server: SocketAddr, question: &[u8], id: u16, query: &Query) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer).await?;
    answer_in(&buffer, id, query).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an answer"))
}

/// The message if it answers our question; anything else is somebody's guess.
fn answer_in(bytes: &[u8], id: u16, query: &Query) -> Option<Message> {
    let message = Message::from_vec(bytes).ok()?;
    let [asked] = &message.queries[..] else { return None };
    let is_ours = message.metadata.id == id
        && message.metadata.message_type == MessageType::Response
        && asked.name == query.name
        && asked.query_type == query.query_type;
    is_ours.then_some(message)
}
