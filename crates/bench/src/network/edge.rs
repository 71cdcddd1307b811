//! The memory of the edge's process.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::report::Report;

/// How long after its last work the edge lets go of what that needed, and a little more.
const SETTLING: Duration = Duration::from_secs(3);
/// How long it may take until its memory is the same as before.
const PATIENCE: Duration = Duration::from_secs(20);
const MIB: f64 = 1024.0 * 1024.0;

/// The only edge among these processes, which have numbers of their own.
pub(super) fn find() -> Option<u32> {
    let numbers =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers = numbers.filter(|pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "warren-edge")
    });
    numbers.next()
}

/// Reports its memory once that has settled.
pub(super) async fn report(report: &mut Report, pid: u32, with: &str) {
    settle(pid).await;
    report.fact(format!("memory of the edge, {with}"), of_status(pid, "VmRSS:"), "MiB");
    report.fact("of that its own (RssAnon)", of_status(pid, "RssAnon:"), "MiB");
    report.fact("of that pages of the program (RssFile)", of_status(pid, "RssFile:"), "MiB");
}

/// Waits until its memory stays the same.
async fn settle(pid: u32) {
    let deadline = Instant::now() + PATIENCE;
    let mut before = f64::NAN;
    loop {
        tokio::time::sleep(SETTLING).await;
        let now = of_status(pid, "VmRSS:");
        if (now - before).abs() < f64::EPSILON || Instant::now() > deadline {
            return;
        }
        before = now;
    }
}

fn of_status(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    crate::daemon::kib_field(&status, field)
        .map_or(0.0, |bytes| f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / MIB)
}
