//! Names the commit in the released program, and links it smaller.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=no-unwinding.ld");
    println!("cargo:rerun-if-env-changed={COMMIT}");
    // A profile that inherits `release`, as `dist` does, is called `release` here too.
    let is_release = is("PROFILE", "release");
    println!("cargo:rustc-env=WARREN_VERSION={}", version(is_release));
    if is_release && is("TARGET", "x86_64-unknown-linux-gnu") && !chooses_linker() {
        link_smaller();
    }
    link_with_older_library();
}

fn is(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|found| found == value)
}

/// `0.1.0 (1a2b3c4d5e6f 2026-11-18)`: the version, the commit and its date. Not the time of the build, so that two
/// builds of one commit are alike.
fn version(is_release: bool) -> String {
    let number = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // A debug build does not know its commit: it would be linked anew after each one.
    let commit = env::var(COMMIT).ok().or_else(|| if is_release { commit() } else { None });
    commit.map_or(number.clone(), |commit| format!("{number} ({commit})"))
}

/// Says `COMMIT DATE` where there is no git, such as in a package's source tree.
const COMMIT: &str = "WARREN_COMMIT";

/// The commit of this working tree; none in a source tree without git, even if it lies within another repository.
fn commit() -> Option<String> {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../..").canonicalize().ok()?;
    let git = |arguments: &[&str]| {
        let asked = Command::new("git").current_dir(&root).args(arguments).output().ok()?;
        let text = String::from_utf8(asked.stdout).ok()?;
        asked.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Its log has a new line whenever HEAD moves.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["-c", "core.abbrev=12", "show", "--no-patch", "--format=%h %cd", "--date=format:%Y-%m-%d", "HEAD"])
}

/// Functions alike are kept once, relocations are packed, and there are no tables for unwinding, since a release aborts
/// on a panic and has no symbols for a backtrace to name. docs/design/build-time.md has the numbers.
fn link_smaller() {
    let script = format!("{}/no-unwinding.ld", env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    for argument in ["--icf=all", "--no-eh-frame-hdr", &format!("-T,{script}")] {
        println!("cargo:rustc-link-arg-bins=-Wl,{argument}");
    }
    if env::var(SYSROOT).is_err() && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library. Since 2.36 it reads packed relocations, which are far smaller.
fn glibc() -> Option<(u32, u32)> {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Links with the C library of `$WARREN_SYSROOT`, which `scripts/dist/sysroot` makes. Only the program, since nothing
/// else that is built leaves this machine. Its start files come along: newer ones would not run constructors under an
/// old library.
fn link_with_older_library() {
    println!("cargo:rerun-if-env-changed={SYSROOT}");
    let Ok(sysroot) = env::var(SYSROOT) else { return };
    let libraries = format!("{sysroot}/usr/lib/x86_64-linux-gnu");
    for argument in [format!("--sysroot={sysroot}"), format!("-B{libraries}"), format!("-L{libraries}")] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

const SYSROOT: &str = "WARREN_SYSROOT";

/// Whether somebody chose another linker than the compiler's own, which may not know these options.
fn chooses_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var("RUSTC_LINKER").is_ok() || flags.contains("linker") || flags.contains("fuse-ld")
}
