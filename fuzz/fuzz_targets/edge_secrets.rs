//! What servers send: values of secrets are taken out alike, however the bytes are cut up.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| edge::fuzzing::fuzz_scrub(bytes));
