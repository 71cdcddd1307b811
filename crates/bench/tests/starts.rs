//! The bench as it is run, as small as it can be: whether it comes to its end, not how fast anything is.

use std::{path::Path, process::Command};

use serde_json::Value;

/// It has several daemons at the same time, which once wanted the same address.
#[test]
fn the_first_suite_comes_to_its_end() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench"));
    let program = bench.with_file_name("warren");
    if !program.exists() {
        eprintln!("not tried: {} is not built (cargo test --workspace builds it)", program.display());
        return;
    }
    let small = ["--runs", "1", "--burst", "2", "--alive", "1", "--file-mib", "1"];
    let done = Command::new(bench).args(small).arg("--json").arg("--program").arg(program).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(report.to_string().contains("warren, from a pool"), "{report:#}");
}
