//! Answers of one sandbox, kept for a while. Not shared: else one sandbox could find out what another asked.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use hickory_proto::{op::ResponseCode, rr::RecordType};
use sandbox::network::DnsName;

use super::answer::Answer;

const MAX_ANSWERS: usize = 256;
const LONGEST: Duration = Duration::from_secs(3600);
/// Life of an answer without records.
const NEGATIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Cache(HashMap<(DnsName, u16), Entry>);

#[derive(Debug)]
struct Entry {
    answer: Answer,
    at: Instant,
    until: Instant,
}

impl Cache {
    /// A kept answer, with what is left of its life.
    pub(crate) fn get(&self, name: &DnsName, kind: RecordType, now: Instant) -> Option<Answer> {
        let entry = self.0.get(&(name.clone(), kind.into())).filter(|entry| entry.until > now)?;
        let age = u32::try_from(now.saturating_duration_since(entry.at).as_secs()).unwrap_or(u32::MAX);
        let mut answer = entry.answer.clone();
        for record in answer.records.iter_mut().chain(&mut answer.authorities) {
            record.ttl = record.ttl.saturating_sub(age);
        }
        Some(answer)
    }

    pub(crate) fn put(&mut self, name: &DnsName, kind: RecordType, answer: &Answer, now: Instant) {
        if answer.code == ResponseCode::ServFail {
            return;
        }
        let shortest = answer.records.iter().map(|record| Duration::from_secs(record.ttl.into())).min();
        let until = now + shortest.unwrap_or(NEGATIVE).min(LONGEST);
        if self.0.len() >= MAX_ANSWERS {
            self.0.retain(|_, entry| entry.until > now);
        }
        if self.0.len() >= MAX_ANSWERS {
            self.0.clear();
        }
        self.0.insert((name.clone(), kind.into()), Entry { answer: answer.clone(), at: now, until });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::{RData, Record, rdata::A};

    use super::*;

    #[test]
    fn answers_grow_old_and_their_number_is_bounded() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let record = Record::from_rdata("a.example.".parse().unwrap(), 100, RData::A(A::new(1, 2, 3, 4)));
        let answer = Answer { records: vec![record], ..Answer::empty() };
        let name: DnsName = "a.example".parse().unwrap();
        cache.put(&name, RecordType::A, &answer, now);
        let ttl = |after: u64| {
            let kept = cache.get(&name, RecordType::A, now + Duration::from_secs(after))?;
            Some(kept.records[0].ttl)
        };
        assert_eq!((ttl(0), ttl(40), ttl(100)), (Some(100), Some(60), None));
        assert_eq!(cache.get(&name, RecordType::AAAA, now), None);

        for number in 0..1000 {
            cache.put(&format!("{number}.example").parse().unwrap(), RecordType::A, &answer, now);
        }
        assert!(cache.0.len() <= MAX_ANSWERS);
    }
}
