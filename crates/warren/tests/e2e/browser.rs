//! A real browser, where there is one.

use std::{
    path::Path,
    process::{Command, Stdio},
};

const BROWSER: &str = "chromium";

pub(crate) fn has_browser() -> bool {
    let found = Command::new(BROWSER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("not tested: {BROWSER} is not installed");
    }
    is_there
}

/// The browser without a window, with a profile of its own.
pub(crate) fn browser(profile: &Path) -> Command {
    let mut browser = Command::new(BROWSER);
    browser
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--no-default-browser-check", "--mute-audio", "--disable-breakpad"])
        // Nothing but this machine is ever asked. Names below localhost need no resolver.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost , EXCLUDE *.localhost")
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null());
    browser
}
