//! `sandbox_metrics`, `sandbox_metrics_all`, `sandbox_metrics_stream`: what sandboxes use right now.

use std::{collections::BTreeMap, time::Duration};

use engine::{SandboxFilter, SandboxRef, SandboxView};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use sandbox::{Result, SandboxState, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::select;
use crate::mcp::{Answer, Call, Failure, Nullable, Tool, ToolResult};

/// Between the two readings from which the processor's share is found.
const MEASURED_OVER: Duration = Duration::from_millis(50);
/// Sandboxes that are measured at the same time.
const MAX_AT_ONCE: usize = 32;
const DEFAULT_INTERVAL_MS: u64 = 1000;
/// Hosts in one answer.
const MAX_HOSTS: usize = 10;

pub(super) fn tools() -> Vec<Tool> {
    tools! { Metrics;
        "sandbox_metrics", "Sandbox metrics", READS, one:
            "Show the current resource usage of a sandbox. cpuPercent (100 is one CPU) is measured over 50 ms; unknown values are null.";
        "sandbox_metrics_all", "Metrics of all sandboxes", READS, all:
            "Show the current resource usage of every live sandbox, by name; cpuPercent is measured over 50 ms.";
        "sandbox_metrics_stream", "Sample sandbox metrics", FOLLOWS, samples:
            "Collect samples of a sandbox's resource usage; cpuPercent is measured since the previous sample, at first over 50 ms.";
    }
}

// Where nobody can tell, a number is `null`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    timestamp: String,
    cpu_percent: Nullable<f64>,
    vcpu_time_ns: Nullable<u64>,
    memory_bytes: Nullable<u64>,
    memory_available_bytes: Nullable<u64>,
    memory_host_resident_bytes: Nullable<u64>,
    memory_limit_bytes: u64,
    memory_peak_bytes: Nullable<u64>,
    disk_bytes: Nullable<u64>,
    disk_limit_bytes: u64,
    disk_read_bytes: Nullable<u64>,
    disk_write_bytes: Nullable<u64>,
    net_rx_bytes: Nullable<u64>,
    net_tx_bytes: Nullable<u64>,
    pids: Nullable<u64>,
    oom_kills: Nullable<u64>,
    uptime_ms: Nullable<u64>,
    uptime_secs: Nullable<u64>,
}

/// Takes readings of one sandbox, and remembers the last for the processor's share.
struct Meter<'a> {
    call: &'a Call,
    which: SandboxRef,
    last: Option<(Instant, Option<u64>)>,
}

impl<'a> Meter<'a> {
    fn new(call: &'a Call, view: &SandboxView) -> Self {
        Self { call, which: SandboxRef::from(&view.id), last: None }
    }

    /// The next reading; the first one takes two of them.
    async fn read(&mut self) -> Result<Metrics> {
        let (before, cpu_before) = match self.last {
            Some(last) => last,
            None => {
                let first = (Instant::now(), self.usage().await?.cpu_micros);
                tokio::time::sleep(MEASURED_OVER).await;
                first
            }
        };
        let now = Instant::now();
        let usage = self.usage().await?;
        self.last = Some((now, usage.cpu_micros));
        let percent = cpu_percent(cpu_before, usage.cpu_micros, now.duration_since(before));
        let view = self.call.engine().sandbox(&self.call.who, &self.which).await?;
        Ok(metrics(&view, &usage, percent))
    }

    async fn usage(&self) -> Result<Usage> {
        self.call.engine().usage(&self.call.who, &self.which).await
    }
}

/// 100 is one whole processor.
fn cpu_percent(before: Option<u64>, after: Option<u64>, over: Duration) -> Option<f64> {
    let used = after?.saturating_sub(before?) as f64;
    let percent = used / over.as_micros().max(1) as f64 * 100.0;
    Some((percent * 100.0).round() / 100.0)
}

fn metrics(view: &SandboxView, usage: &Usage, cpu_percent: Option<f64>) -> Metrics {
    let now = Timestamp::now();
    let memory_limit = view.plan.limits.memory.bytes();
    let uptime = view.started_at.map(|at| u64::try_from(now.duration_since(at).as_millis()).unwrap_or(0));
    let unknown = Nullable(None::<u64>);
    Metrics {
        timestamp: now.to_string(),
        cpu_percent: Nullable(cpu_percent),
        vcpu_time_ns: Nullable(usage.cpu_micros.map(|micros| micros.saturating_mul(1000))),
        memory_bytes: Nullable(usage.memory_bytes),
        memory_available_bytes: Nullable(usage.memory_bytes.map(|used| memory_limit.saturating_sub(used))),
        memory_host_resident_bytes: unknown,
        memory_limit_bytes: memory_limit,
        memory_peak_bytes: Nullable(usage.memory_peak_bytes),
        disk_bytes: Nullable(usage.disk_bytes),
        disk_limit_bytes: view.plan.limits.disk.bytes(),
        disk_read_bytes: unknown,
        disk_write_bytes: unknown,
        net_rx_bytes: Nullable(usage.network.map(|network| network.received_bytes)),
        net_tx_bytes: Nullable(usage.network.map(|network| network.sent_bytes)),
        pids: Nullable(usage.pids),
        oom_kills: Nullable(usage.oom_kills),
        uptime_ms: Nullable(uptime),
        uptime_secs: Nullable(uptime.map(|ms| (ms + 500) / 1000)),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OneArguments {
    name: String,
}

/// The metrics of one sandbox, with the hosts that it talked to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OneSandbox {
    #[serde(flatten)]
    metrics: Metrics,
    /// The 10 busiest
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<Host>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Host {
    host: String,
    connections: u64,
    denied: u64,
    rx_bytes: u64,
    tx_bytes: u64,
}

async fn one(call: Call, arguments: OneArguments) -> ToolResult<OneSandbox> {
    let view = find(&call, &arguments.name).await?;
    let read = Meter::new(&call, &view).read().await;
    let metrics = read.map_err(|error| select::refused(error, &view))?;
    let found = call.engine().network_hosts(&call.who, &SandboxRef::from(&view.id)).await?;
    let hosts = found.hosts.into_iter().take(MAX_HOSTS).map(|host| Host {
        host: host.host,
        connections: host.connections,
        denied: host.denied,
        rx_bytes: host.received_bytes,
        tx_bytes: host.sent_bytes,
    });
    Ok(Answer::new(OneSandbox { metrics, hosts: hosts.collect() }))
}

async fn find(call: &Call, name: &str) -> std::result::Result<SandboxView, Failure> {
    Ok(call.engine().sandbox(&call.who, &call.sandbox(name)?).await?)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AllArguments {}

async fn all(call: Call, _: AllArguments) -> ToolResult<BTreeMap<String, Metrics>> {
    let filter = SandboxFilter {
        namespace: Some(select::namespace(&call)),
        states: vec![SandboxState::Running, SandboxState::Paused],
        ..SandboxFilter::default()
    };
    let views = call.engine().sandboxes(&call.who, &filter).await?;
    let call = &call;
    let read = stream::iter(views)
        .map(|view| async move { (view.name.to_string(), Meter::new(call, &view).read().await) })
        .buffer_unordered(MAX_AT_ONCE)
        .collect::<Vec<_>>();
    let read = tokio::select! {
        read = read => read,
        () = call.cancelled.cancelled() => return Err(select::cancelled()),
    };
    let mut answer = Answer::new(BTreeMap::new());
    for (name, read) in read {
        match read {
            Ok(metrics) => drop(answer.data.insert(name, metrics)),
            Err(error) => answer.warnings.push(format!("Could not measure {name}: {error}.")),
        }
    }
    answer.warnings.sort();
    Ok(answer)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StreamArguments {
    name: String,
    #[schemars(range(min = 1))]
    interval_ms: Option<u64>,
    #[schemars(range(min = 1, max = 100))]
    samples: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Samples {
    name: String,
    interval_ms: u64,
    samples: Vec<Metrics>,
}

async fn samples(call: Call, arguments: StreamArguments) -> ToolResult<Samples> {
    let view = find(&call, &arguments.name).await?;
    let interval_ms = arguments.interval_ms.unwrap_or(DEFAULT_INTERVAL_MS);
    let n_wanted = arguments.samples.unwrap_or(1) as usize;
    let mut meter = Meter::new(&call, &view);
    let mut samples = Vec::with_capacity(n_wanted);
    let mut warning = None;
    while samples.len() < n_wanted {
        let pause = if samples.is_empty() { Duration::ZERO } else { Duration::from_millis(interval_ms) };
        let next = async {
            tokio::time::sleep(pause).await;
            meter.read().await
        };
        tokio::select! {
            biased;
            () = call.cancelled.cancelled() => {
                warning = Some(format!("Cancelled after {} of {n_wanted} samples.", samples.len()));
                break;
            }
            read = next => match read {
                Ok(metrics) => samples.push(metrics),
                Err(error) if samples.is_empty() => return Err(select::refused(error, &view)),
                Err(error) => {
                    warning = Some(format!("Ended after {} samples: {}.", samples.len(), error));
                    break;
                }
            },
        }
        let told = format!("{} of {n_wanted} samples", samples.len());
        call.progress.tell(samples.len() as f64, Some(n_wanted as f64), told).await;
    }
    let name = view.name.to_string();
    Ok(Answer::new(Samples { name, interval_ms, samples }).warn_all(warning))
}

#[cfg(test)]
mod tests {
    use sandbox::Capability;
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::{call::Progress, testing::Client};

    async fn with(names: &[&str]) -> Client {
        let client = Client::new().await;
        for name in names {
            client.data("sandbox_create", json!({ "name": name, "memoryMib": 64 })).await;
        }
        client
    }

    fn check(metrics: &Value) {
        assert_eq!(metrics["memoryLimitBytes"], 64 * 1024 * 1024, "{metrics:#}");
        for unknown in
            ["diskReadBytes", "diskWriteBytes", "netRxBytes", "netTxBytes", "memoryHostResidentBytes"]
        {
            assert_eq!(metrics.get(unknown), Some(&Value::Null), "{unknown}");
        }
        for known in ["vcpuTimeNs", "memoryBytes", "pids", "diskBytes", "uptimeMs", "uptimeSecs"] {
            assert!(metrics[known].is_u64(), "{known} in {metrics:#}");
        }
        assert!(metrics["cpuPercent"].as_f64() >= Some(0.0), "{metrics:#}");
        // Only a cgroup can tell this, and not every host lends one.
        assert!(metrics["oomKills"].is_u64() || metrics["oomKills"].is_null(), "{metrics:#}");
    }

    #[test]
    fn a_share_of_the_processor_is_time_used_over_time_passed() {
        let over = Duration::from_millis(50);
        assert_eq!(cpu_percent(Some(1_000), Some(51_000), over), Some(100.0));
        assert_eq!(cpu_percent(Some(0), Some(125_000), over), Some(250.0));
        // A counter that began anew.
        assert_eq!(cpu_percent(Some(9), Some(0), over), Some(0.0));
        assert_eq!((cpu_percent(None, Some(1), over), cpu_percent(Some(1), None, over)), (None, None));
        assert_eq!(cpu_percent(Some(0), Some(0), Duration::ZERO), Some(0.0));
    }

    #[tokio::test]
    async fn live_sandboxes_are_measured_one_or_all() {
        let client = with(&["a", "b", "c"]).await;
        check(&client.data("sandbox_metrics", json!({ "name": "a" })).await);
        client.data("sandbox_stop", json!({ "name": "b" })).await;
        if client.has(Capability::Pause) {
            client.data("sandbox_pause", json!({ "name": "c" })).await;
        }
        let all = client.data("sandbox_metrics_all", json!({})).await;
        assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "c"]);
        check(&all["a"]);
        client.error("sandbox_metrics", json!({ "name": "nope" }), "not_found").await;
        client.error("sandbox_metrics_stream", json!({ "name": "b" }), "wrong_state").await;
    }

    #[tokio::test]
    async fn samples_are_collected_and_told_one_by_one() {
        let mut client = with(&["a"]).await;
        let (send, mut told) = tokio::sync::mpsc::unbounded_channel();
        client.call.progress = Progress::new(move |step| {
            send.send(step.done).unwrap();
            Box::pin(async {})
        });
        let arguments = json!({ "name": "a", "intervalMs": 1, "samples": 3 });
        let data = client.data("sandbox_metrics_stream", arguments).await;
        assert_eq!((&data["name"], &data["intervalMs"]), (&json!("a"), &json!(1)));
        assert_eq!(data["samples"].as_array().unwrap().len(), 3);
        check(&data["samples"][2]);
        assert_eq!([told.try_recv(), told.try_recv(), told.try_recv()], [Ok(1.0), Ok(2.0), Ok(3.0)]);
        for (samples, interval) in [(0, 1), (101, 1), (1, 0)] {
            let arguments = json!({ "name": "a", "samples": samples, "intervalMs": interval });
            client.error("sandbox_metrics_stream", arguments, "invalid_request").await;
        }
    }

    #[tokio::test]
    async fn a_cancelled_stream_ends_with_what_it_has() {
        let mut client = with(&["a"]).await;
        let cancelled = client.call.cancelled.clone();
        client.call.progress = Progress::new(move |step| {
            if step.done >= 2.0 {
                cancelled.cancel();
            }
            Box::pin(async {})
        });
        let arguments = json!({ "name": "a", "intervalMs": 1, "samples": 100 });
        let envelope = client.ask("sandbox_metrics_stream", arguments).await;
        assert_eq!(envelope["data"]["samples"].as_array().unwrap().len(), 2, "{envelope:#}");
        assert_eq!(envelope["warnings"], json!(["Cancelled after 2 of 100 samples."]));
    }

    #[tokio::test]
    async fn a_stream_of_a_sandbox_that_ends_keeps_its_samples() {
        let mut client = with(&["a"]).await;
        let backend = client.backend.clone();
        client.call.progress = Progress::new(move |step| {
            if step.done == 1.0 {
                assert!(backend.live().iter().all(|id| backend.vanish(id)));
            }
            Box::pin(async {})
        });
        // Its end is noticed soon, not at once.
        let arguments = json!({ "name": "a", "intervalMs": 100, "samples": 100 });
        let envelope = client.ask("sandbox_metrics_stream", arguments).await;
        let n_samples = envelope["data"]["samples"].as_array().unwrap().len();
        assert!((1..100).contains(&n_samples), "{envelope:#}");
        let told = format!("Ended after {n_samples} samples");
        assert!(envelope["warnings"][0].as_str().unwrap().starts_with(&told), "{envelope}");
    }
}
