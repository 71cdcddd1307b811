//! Answers: what a server said, without what a policy takes out.

use std::net::IpAddr;

use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{
            HTTPS, SVCB,
            svcb::{SvcParamKey, SvcParamValue},
        },
    },
};

use super::wire::Note;

/// Most names that an answer may lead through.
const MAX_CNAMES: usize = 16;
/// Most records of an answer besides them.
const MAX_RECORDS: usize = 64;
/// Longest life of a record.
const LONGEST_TTL: u32 = 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: ResponseCode,
    pub(crate) records: Vec<Record>,
    /// The zone of a name that does not exist, so that clients remember that.
    pub(crate) authorities: Vec<Record>,
    pub(crate) note: Option<Note>,
    /// Addresses that were taken out.
    pub(crate) removed: Vec<IpAddr>,
}

impl Answer {
    /// The name exists and has no such record.
    pub(crate) fn empty() -> Self {
        Self::code(ResponseCode::NoError)
    }

    pub(crate) fn code(code: ResponseCode) -> Self {
        Self { code, records: Vec::new(), authorities: Vec::new(), note: None, removed: Vec::new() }
    }

    pub(crate) fn refused(code: ResponseCode, note: Note) -> Self {
        Self { note: Some(note), ..Self::code(code) }
    }

    /// The addresses and how long each is good for.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.records.iter().filter_map(|record| Some((address(record)?, record.ttl)))
    }
}

/// Takes from a server's message what answers the question, and what the policy lets through of that.
pub(crate) fn filter(question: &Query, response: &Message, may_answer: impl Fn(IpAddr) -> bool) -> Answer {
    let mut answer = Answer::code(match response.metadata.response_code {
        code @ (ResponseCode::NoError | ResponseCode::NXDomain) => code,
        _ => ResponseCode::ServFail,
    });
    let owner = follow(question, response, &mut answer.records);
    let wanted = response.answers.iter().filter(|record| {
        record.name == owner
            && record.record_type() == question.query_type
            && record.data.record_type() != RecordType::CNAME
    });
    let mut kept = 0;
    for record in wanted {
        let refused = address(record).filter(|address| !may_answer(*address));
        if let Some(address) = refused {
            answer.removed.push(address);
        } else if kept < MAX_RECORDS {
            answer.records.push(cleaned(record));
            kept += 1;
        }
    }
    answer.removed.truncate(MAX_RECORDS);
    if kept == 0 {
        let zone = response.authorities.iter().find(|record| record.record_type() == RecordType::SOA);
        answer.authorities.extend(zone.map(cleaned));
    }
    answer
}

/// Follows CNAMEs from the name that was asked for to the last, and keeps them.
fn follow(question: &Query, response: &Message, records: &mut Vec<Record>) -> Name {
    let mut owner = question.name.clone();
    if question.query_type == RecordType::CNAME {
        let own = response
            .answers
            .iter()
            .find(|record| record.name == owner && matches!(record.data, RData::CNAME(_)));
        records.extend(own.map(cleaned));
        return owner;
    }
    for _ in 0..MAX_CNAMES {
        let next = response.answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == owner => Some((record, target.0.clone())),
            _ => None,
        });
        let Some((record, target)) = next else { return owner };
        records.push(cleaned(record));
        owner = target;
    }
    owner
}

fn address(record: &Record) -> Option<IpAddr> {
    match &record.data {
        RData::A(address) => Some(address.0.into()),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    }
}

/// The record without what would lead past the policy: addresses that we did not look at, and encrypted names.
fn cleaned(record: &Record) -> Record {
    let mut record = record.clone();
    record.ttl = record.ttl.min(LONGEST_TTL);
    record.data = match record.data {
        RData::HTTPS(https) => RData::HTTPS(HTTPS(without_hints(https.0))),
        RData::SVCB(service) => RData::SVCB(without_hints(service)),
        other => other,
    };
    record
}

fn without_hints(mut service: SVCB) -> SVCB {
    let is_hint = |key: &SvcParamKey| {
        matches!(key, SvcParamKey::EchConfigList | SvcParamKey::Ipv4Hint | SvcParamKey::Ipv6Hint)
    };
    service.svc_params.retain(|(key, _)| !is_hint(key));
    for (_, value) in &mut service.svc_params {
        if let SvcParamValue::Mandatory(mandatory) = value {
            mandatory.0.retain(|key| !is_hint(key));
        }
    }
    // A list of nothing cannot be written.
    service
        .svc_params
        .retain(|(_, value)| !matches!(value, SvcParamValue::Mandatory(keys) if keys.0.is_empty()));
    service
}

pub(super) fn fuzz_filter(question: &Query, response: &Message) {
    let answer = filter(question, response, |address| address.is_ipv4());
    assert!(answer.records.len() <= MAX_CNAMES + MAX_RECORDS);
    assert!(answer.addresses().all(|(address, ttl)| address.is_ipv4() && ttl <= LONGEST_TTL));
}

#[cfg(test)]
mod tests {
    use hickory_proto::{
        op::OpCode,
        rr::rdata::{
            A, CNAME,
            svcb::{Alpn, EchConfigList, IpHint, Mandatory},
        },
    };

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn a(owner: &str, address: [u8; 4]) -> Record {
        Record::from_rdata(name(owner), 300, RData::A(A(address.into())))
    }

    fn alias(owner: &str, target: &str) -> Record {
        Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target))))
    }

    fn filtered(kind: RecordType, records: Vec<Record>) -> Answer {
        let mut response = Message::response(1, OpCode::Query);
        response.add_answers(records);
        let question = Query::query(name("a.example."), kind);
        filter(&question, &response, |address| address != IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn aliases_are_followed_and_strangers_are_left_out() {
        let answer = filtered(
            RecordType::A,
            vec![
                a("b.example.", [93, 184, 216, 1]),
                alias("A.example.", "b.example."),
                a("c.example.", [93, 184, 216, 2]),
                a("b.example.", [10, 0, 0, 1]),
            ],
        );
        assert_eq!(answer.addresses().collect::<Vec<_>>(), [([93, 184, 216, 1].into(), 300)]);
        assert_eq!(answer.records.len(), 2);
        assert_eq!(answer.removed, [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn circles_and_thousands_of_records_come_to_an_end() {
        let circle = filtered(
            RecordType::A,
            vec![alias("a.example.", "b.example."), alias("b.example.", "a.example.")],
        );
        assert_eq!(circle.records.len(), MAX_CNAMES);
        let many = (0..=255).flat_map(|x| (0..8).map(move |y| a("a.example.", [93, 184, y, x]))).collect();
        assert_eq!(filtered(RecordType::A, many).records.len(), MAX_RECORDS);
    }

    #[test]
    fn keys_for_encrypted_names_and_hints_are_taken_out() {
        let params = vec![
            (
                SvcParamKey::Mandatory,
                SvcParamValue::Mandatory(Mandatory(vec![SvcParamKey::Alpn, SvcParamKey::Ipv4Hint])),
            ),
            (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()]))),
            (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A::new(10, 0, 0, 1)]))),
            (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![1, 2, 3]))),
        ];
        let service = SVCB::new(1, Name::root(), params);
        let record = Record::from_rdata(name("a.example."), 300, RData::HTTPS(HTTPS(service)));
        let answer = filtered(RecordType::HTTPS, vec![record]);
        let [Record { data: RData::HTTPS(https), .. }] = &answer.records[..] else { panic!("{answer:?}") };
        assert_eq!(
            https.0.svc_params,
            [
                (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(vec![SvcParamKey::Alpn]))),
                (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()]))),
            ]
        );
    }
}
