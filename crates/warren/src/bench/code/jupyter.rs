//! A Jupyter kernel beside ours, where it is installed.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use serde::Deserialize;

use crate::{bench::samples::Samples, output};

const SCRIPT: &str = include_str!("jupyter.py");

pub(super) struct Times {
    pub(super) starts: Samples,
    pub(super) cells: Samples,
}

/// Seconds, as the script tells them.
#[derive(Deserialize)]
struct Told {
    starts: Vec<f64>,
    cells: Vec<f64>,
}

/// Nothing where it is not installed or does not work.
pub(super) fn measure(n_starts: usize, n_cells: usize) -> Option<Times> {
    let mut import = Command::new("python3");
    let import = import.args(["-c", "import ipykernel, jupyter_client"]).stderr(Stdio::null());
    if !import.status().is_ok_and(|status| status.success()) {
        return None;
    }
    output::progress("Jupyter kernel");
    let mut python = Command::new("python3")
        .args(["-", &n_starts.to_string(), &n_cells.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    python.stdin.take()?.write_all(SCRIPT.as_bytes()).ok()?;
    let told: Told = serde_json::from_slice(&python.wait_with_output().ok()?.stdout).ok()?;
    Some(Times { starts: samples(&told.starts), cells: samples(&told.cells) })
}

fn samples(seconds: &[f64]) -> Samples {
    let mut samples = Samples::default();
    for span in seconds.iter().filter_map(|seconds| Duration::try_from_secs_f64(*seconds).ok()) {
        samples.push(span);
    }
    samples
}
