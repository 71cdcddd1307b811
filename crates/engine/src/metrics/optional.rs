//! A gauge without a series as long as its value is not known.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::MetricType,
};

/// Clones share the value.
#[derive(Debug, Clone, Default)]
pub(super) struct OptionalGauge(Arc<Mutex<Option<u64>>>);

impl OptionalGauge {
    pub(super) fn set(&self, value: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

impl EncodeMetric for OptionalGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let value = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        value.map_or(Ok(()), |value| encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
