//! A DNS server of the world, at 10.9.9.9: says what it is told to say, and remembers what it was asked. `warren`'s own
//! tests use it too.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::UdpSocket,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use hickory_proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, HTTPS, SVCB, TXT, svcb},
    },
};

use super::servers::serve;

const AT: &str = "10.9.9.9:53";
/// The largest datagram that a server sends.
const DATAGRAM: usize = 1232;

#[derive(Debug, Clone, Default)]
pub(crate) struct Zone {
    records: Arc<Mutex<HashMap<Name, Vec<RData>>>>,
    asked: Arc<Mutex<Vec<String>>>,
    mood: Arc<Mutex<Mood>>,
}

/// How it answers datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Mood {
    #[default]
    Honest,
    Silent,
    Slow(Duration),
    /// Before the answer come two that anybody might have sent: of another question's number, and of another name.
    Spoofed,
}

/// Where spoofed answers lead.
const ELSEWHERE: [u8; 4] = [93, 184, 216, 66];

impl Zone {
    /// `name address`, `name > alias`, `name https`, `name "text"`, separated by commas.
    pub(crate) fn start(text: &str) -> Self {
        let zone = Self::default();
        for line in text.split(',') {
            zone.add(line);
        }
        let (by_datagram, by_stream) = (zone.clone(), zone.clone());
        let socket = UdpSocket::bind(AT).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let Some(mut reply) = by_datagram.reply(&buffer[..length]) else { continue };
                if reply.to_vec().unwrap().len() > DATAGRAM {
                    reply = reply.truncate();
                }
                let mood = *by_datagram.mood.lock().unwrap();
                match mood {
                    Mood::Honest => {}
                    Mood::Silent => continue,
                    Mood::Slow(pause) => thread::sleep(pause),
                    Mood::Spoofed => {
                        for lie in lies(&reply) {
                            socket.send_to(&lie.to_vec().unwrap(), from).unwrap();
                        }
                    }
                }
                socket.send_to(&reply.to_vec().unwrap(), from).unwrap();
            }
        });
        serve(AT, move |mut stream| {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).unwrap();
            let reply = by_stream.reply(&question).unwrap().to_vec().unwrap();
            stream.write_all(&u16::try_from(reply.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(&reply).unwrap();
        });
        zone
    }

    pub(crate) fn add(&self, line: &str) {
        let (name, value) = line.trim().split_once(' ').unwrap();
        let data = match value {
            alias if alias.starts_with("> ") => RData::CNAME(CNAME(absolute(&alias[2..]))),
            text if text.starts_with('"') => RData::TXT(TXT::new(vec![text.to_owned()])),
            "https" => RData::HTTPS(HTTPS(SVCB::new(1, Name::root(), parameters()))),
            v6 if v6.contains(':') => RData::AAAA(AAAA(v6.parse().unwrap())),
            v4 => RData::A(A(v4.parse().unwrap())),
        };
        self.records.lock().unwrap().entry(absolute(name)).or_default().push(data);
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Every question since the start, as `name type`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn reply(&self, question: &[u8]) -> Option<Message> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        self.asked.lock().unwrap().push(format!("{} {}", query.name, query.query_type));
        let mut reply = Message::response(question.metadata.id, OpCode::Query);
        let records = self.records.lock().unwrap();
        let mut owner = query.name.clone();
        reply.metadata.response_code =
            if records.contains_key(&owner) { ResponseCode::NoError } else { ResponseCode::NXDomain };
        while let Some(found) = records.get(&owner) {
            let wanted = |data: &&RData| {
                data.record_type() == query.query_type || data.record_type() == RecordType::CNAME
            };
            let some =
                found.iter().filter(wanted).map(|data| Record::from_rdata(owner.clone(), 300, data.clone()));
            reply.add_answers(some);
            let alias = found.iter().find_map(|data| match data {
                RData::CNAME(target) => Some(target.0.clone()),
                _ => None,
            });
            match alias {
                Some(target) => owner = target,
                None => break,
            }
        }
        reply.add_query(query);
        Some(reply)
    }
}

fn lies(reply: &Message) -> [Message; 2] {
    let [mut other_number, mut other_name] = [reply.clone(), reply.clone()];
    other_number.metadata.id ^= 1;
    for query in &mut other_name.queries {
        query.name = absolute("other.example");
    }
    [other_number, other_name].map(|mut lie| {
        lie.answers = lie.queries.iter().map(|query| elsewhere(&query.name)).collect();
        lie
    })
}

fn elsewhere(name: &Name) -> Record {
    Record::from_rdata(name.clone(), 300, RData::A(A(ELSEWHERE.into())))
}

fn absolute(name: &str) -> Name {
    format!("{name}.").parse().unwrap()
}

fn parameters() -> Vec<(svcb::SvcParamKey, svcb::SvcParamValue)> {
    use svcb::{Alpn, EchConfigList, IpHint, SvcParamKey, SvcParamValue};
    vec![
        (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()]))),
        (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A::new(10, 0, 0, 1)]))),
        (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![1, 2, 3]))),
    ]
}
