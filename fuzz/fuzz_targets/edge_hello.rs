//! The first bytes of TLS connections: the name is the same however they are cut up.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| edge::fuzzing::fuzz_hello(bytes));
