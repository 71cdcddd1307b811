//! HTTP requests without TLS: each is for one name, or is refused.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime can be made"));
}

fuzz_target!(|bytes: &[u8]| {
    RUNTIME.with(|runtime| runtime.block_on(edge::fuzzing::fuzz_requests(bytes.to_vec())));
});
