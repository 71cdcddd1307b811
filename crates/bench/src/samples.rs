//! Repeated measurements and their summary.

use std::time::Duration;

use serde::Serialize;

/// Times of the same thing done repeatedly.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<Duration>);

/// The printed values, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    pub(crate) runs: usize,
    pub(crate) min_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}

impl From<Vec<Duration>> for Samples {
    fn from(times: Vec<Duration>) -> Self {
        Self(times)
    }
}

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// `None` if nothing was measured.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len() - 1)).copied();
        let (first, middle) = (sorted.first()?, at(50)?);
        Some(Summary {
            runs: sorted.len(),
            min_ms: millis(*first),
            p50_ms: millis(middle),
            p95_ms: millis(at(95)?),
            p99_ms: millis(at(99)?),
        })
    }
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let samples = Samples((1..=100).rev().map(Duration::from_millis).collect());
        let summary = samples.summary().unwrap();
        assert_eq!(
            (summary.min_ms, summary.p50_ms, summary.p95_ms, summary.p99_ms),
            (1.0, 51.0, 96.0, 100.0)
        );
        assert_eq!(Samples::default().summary(), None);
    }
}
