//! A Jupyter kernel for comparison, if it is installed.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use serde::Deserialize;

use crate::{progress, samples::Samples};

const SCRIPT: &str = include_str!("jupyter.py");

pub(super) struct Times {
    pub(super) starts: Samples,
    pub(super) cells: Samples,
}

/// The script's output.
#[derive(Deserialize)]
struct Seconds {
    starts: Vec<f64>,
    cells: Vec<f64>,
}

/// Nothing if it is not installed or does not work.
pub(super) fn measure(n_starts: usize, n_cells: usize) -> Option<Times> {
    let mut import = Command::new("python3");
    let import = import.args(["-c", "import ipykernel, jupyter_client"]).stderr(Stdio::null());
    if !import.status().is_ok_and(|status| status.success()) {
        return None;
    }
    progress("Jupyter kernel", 0, 1);
    let mut python = Command::new("python3")
        .args(["-", &n_starts.to_string(), &n_cells.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    python.stdin.take()?.write_all(SCRIPT.as_bytes()).ok()?;
    let told: Seconds = serde_json::from_slice(&python.wait_with_output().ok()?.stdout).ok()?;
    Some(Times { starts: samples(&told.starts), cells: samples(&told.cells) })
}

fn samples(seconds: &[f64]) -> Samples {
    let times = seconds.iter().filter_map(|seconds| Duration::try_from_secs_f64(*seconds).ok());
    Samples::from(times.collect::<Vec<_>>())
}
