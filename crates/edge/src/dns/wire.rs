//! DNS messages as they come from a sandbox and go back to it.

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{DNSClass, RecordType, rdata::opt::EdnsOption},
};
use sandbox::network::DnsName;

use super::answer::{self, Answer};

/// Longest question. A name has at most 255 bytes; the rest is options.
pub(crate) const MAX_QUESTION: usize = 2048;
/// The largest datagram for a client that states no size.
const SMALLEST_DATAGRAM: u16 = 512;
/// The option that carries an extended error (RFC 8914).
const EXTENDED_ERROR: u16 = 15;
const FILTERED: u16 = 17;
const NETWORK_ERROR: u16 = 23;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    id: u16,
    pub(crate) query: Query,
    /// The name asked for; `None` if it could not be a host's.
    pub(crate) name: Option<DnsName>,
    /// The largest datagram that the client takes, if it speaks EDNS.
    payload: Option<u16>,
    is_recursion_desired: bool,
}

/// An extended error: why there is no answer, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    code: u16,
    text: String,
}

impl Note {
    pub(crate) fn filtered(text: String) -> Self {
        Self { code: FILTERED, text }
    }

    pub(crate) fn network(text: String) -> Self {
        Self { code: NETWORK_ERROR, text }
    }
}

/// Reads a question. Otherwise: what is answered in its place, if anything.
pub(crate) fn read(bytes: &[u8]) -> Result<Question, Option<Vec<u8>>> {
    if bytes.len() > MAX_QUESTION {
        return Err(None);
    }
    let Ok(message) = Message::from_vec(bytes) else { return Err(unreadable(bytes)) };
    let (id, op_code) = (message.metadata.id, message.metadata.op_code);
    if message.metadata.message_type != MessageType::Query {
        return Err(None);
    }
    let refuse = |code| Err(Message::error_msg(id, op_code, code).to_vec().ok());
    if op_code != OpCode::Query {
        return refuse(ResponseCode::NotImp);
    }
    let [query] = &message.queries[..] else { return refuse(ResponseCode::FormErr) };
    if query.query_class != DNSClass::IN {
        return refuse(ResponseCode::NotImp);
    }
    Ok(Question {
        id,
        query: query.clone(),
        name: query.name.to_ascii().parse().ok(),
        payload: message.edns.as_ref().map(Edns::max_payload),
        is_recursion_desired: message.metadata.recursion_desired,
    })
}

/// "Format error", if at least the number of the question can be read.
fn unreadable(bytes: &[u8]) -> Option<Vec<u8>> {
    let header: &[u8; 12] = bytes.first_chunk()?;
    let is_question = header[2] & 0x80 == 0;
    let id = u16::from_be_bytes([header[0], header[1]]);
    is_question.then(|| Message::error_msg(id, OpCode::Query, ResponseCode::FormErr).to_vec().ok())?
}

impl Question {
    pub(crate) fn kind(&self) -> RecordType {
        self.query.query_type
    }

    /// The answer as a message of at most `largest` bytes, cut off if need be.
    pub(crate) fn encode(&self, answer: &Answer, largest: usize) -> Option<Vec<u8>> {
        let message = self.message(answer);
        let bytes = message.to_vec().ok()?;
        // A stream has room for every answer.
        let is_stream = largest == usize::from(u16::MAX);
        let room = self.payload.unwrap_or(SMALLEST_DATAGRAM).max(SMALLEST_DATAGRAM);
        let room = if is_stream { largest } else { largest.min(room.into()) };
        if bytes.len() <= room {
            return Some(bytes);
        }
        let mut cut = self.message(&Answer { code: answer.code, ..Answer::empty() });
        cut.metadata.truncation = true;
        cut.to_vec().ok()
    }

    fn message(&self, answer: &Answer) -> Message {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.is_recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = answer.code;
        message.add_query(self.query.clone());
        message.add_answers(answer.records.iter().cloned());
        message.add_authorities(answer.authorities.iter().cloned());
        if self.payload.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(1232);
            if let Some(note) = &answer.note {
                let data = [&note.code.to_be_bytes()[..], note.text.as_bytes()].concat();
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, data));
            }
            message.set_edns(edns);
        }
        message
    }
}

/// Reads bytes as a question, and as the answer to it: what is made of them must be readable and within the limits.
#[doc(hidden)]
pub fn fuzz_message(bytes: &[u8]) {
    match read(bytes) {
        Ok(question) => {
            let note = Some(Note::filtered("text".to_owned()));
            let refused = Answer { note, ..Answer::code(ResponseCode::Refused) };
            if let Some(reply) = question.encode(&refused, 512) {
                assert!(Message::from_vec(&reply).is_ok());
            }
        }
        Err(Some(reply)) => assert!(Message::from_vec(&reply).is_ok()),
        Err(None) => {}
    }
    if let Ok(response) = Message::from_vec(bytes)
        && let Some(query) = response.queries.first()
    {
        answer::fuzz_filter(query, &response);
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::{RData, Record, rdata::A};

    use super::*;

    fn question(edns: bool) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query("API.example.org.".parse().unwrap(), RecordType::A));
        if edns {
            message.set_edns(Edns::new());
        }
        message.to_vec().unwrap()
    }

    #[test]
    fn a_refusal_says_why_to_those_who_can_read_it() {
        let refused = Answer::refused(ResponseCode::Refused, Note::filtered("because".to_owned()));
        for (edns, notes) in [(true, 1), (false, 0)] {
            let question = read(&question(edns)).unwrap();
            assert_eq!(question.name, Some("api.example.org".parse().unwrap()));
            let reply = Message::from_vec(&question.encode(&refused, 512).unwrap()).unwrap();
            assert_eq!((reply.metadata.id, reply.metadata.response_code), (7, ResponseCode::Refused));
            let options = reply.edns.map_or(0, |edns| edns.options().as_ref().len());
            assert_eq!(options, notes);
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_cut_and_said_to_be() {
        let question = read(&question(false)).unwrap();
        let name = question.query.name.clone();
        let records = (0..60)
            .map(|last| Record::from_rdata(name.clone(), 60, RData::A(A::new(93, 184, 216, last))))
            .collect();
        let answer = Answer { records, ..Answer::empty() };
        let cut = Message::from_vec(&question.encode(&answer, 4096).unwrap()).unwrap();
        assert!(cut.metadata.truncation && cut.answers.is_empty());
        let whole = Message::from_vec(&question.encode(&answer, 65_535).unwrap()).unwrap();
        assert_eq!(whole.answers.len(), 60);
    }

    #[test]
    fn what_is_no_question_is_not_answered_as_one() {
        let mut response = Message::response(7, OpCode::Query);
        response.add_query(Query::query("a.example.".parse().unwrap(), RecordType::A));
        assert_eq!(read(&response.to_vec().unwrap()), Err(None));
        assert_eq!(read(b"short"), Err(None));
        let mut garbage = vec![0xff; 40];
        garbage[2] = 0;
        let Err(Some(reply)) = read(&garbage) else { panic!("it was read") };
        assert_eq!(Message::from_vec(&reply).unwrap().metadata.response_code, ResponseCode::FormErr);
    }
}
