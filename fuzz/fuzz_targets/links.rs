//! Tokens of links: made up, and made here and then changed. None that was changed opens.
#![no_main]

use std::{sync::OnceLock, time::Duration};

use axum::http::Method;
use engine::{LinkTarget, Principal};
use libfuzzer_sys::fuzz_target;
use warren_fuzz::Daemon;

fn token(daemon: &Daemon) -> Option<String> {
    let who = Principal::operator("fuzzer");
    let body = br#"{"name":"linked"}"#;
    daemon.ask(Method::POST, "/v1/sandboxes", &[("content-type", "application/json")], body);
    let all = daemon.runtime.block_on(daemon.engine.sandboxes(&who, &Default::default())).ok()?;
    let sandbox = all.into_iter().next()?.id;
    let target = LinkTarget::File { path: "/etc/hostname".to_owned() };
    let link = daemon.engine.sign_link(&who, &sandbox, &target, Duration::from_secs(3600)).ok()?;
    Some(link.token)
}

fuzz_target!(|input: (String, u16, u8)| {
    let (made_up, at, change) = input;
    let daemon = Daemon::get();
    let _refused = daemon.engine.open_link(&made_up);
    static TOKEN: OnceLock<Option<String>> = OnceLock::new();
    let Some(real) = TOKEN.get_or_init(|| token(daemon)) else { panic!("no link could be made") };
    let mut changed = real.clone().into_bytes();
    let at = usize::from(at) % changed.len();
    changed[at] ^= change;
    if let Ok(changed) = String::from_utf8(changed)
        && changed != *real
    {
        assert!(daemon.engine.open_link(&changed).is_err(), "{changed} opens, made from {real}");
    }
});
