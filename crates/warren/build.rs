//! Links the released program smaller: functions alike are kept once, and there are no tables for unwinding, since a
//! release aborts on a panic and has no symbols for a backtrace to name. docs/design/build-time.md has the numbers.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=no-unwinding.ld");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    if !is("PROFILE", "release") || !is("TARGET", "x86_64-unknown-linux-gnu") || chooses_linker() {
        return;
    }
    let script = format!("{}/no-unwinding.ld", env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    for argument in ["--icf=all", "--no-eh-frame-hdr", &format!("-T,{script}")] {
        println!("cargo:rustc-link-arg-bins=-Wl,{argument}");
    }
}

/// Whether somebody chose another linker than the compiler's own, which may not know these options.
fn chooses_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var("RUSTC_LINKER").is_ok() || flags.contains("linker") || flags.contains("fuse-ld")
}
