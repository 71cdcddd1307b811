//! DNS messages and packets as a sandbox or a server makes them: whatever is made of them can be read, within the
//! limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    edge::fuzzing::fuzz_message(bytes);
    edge::fuzzing::fuzz_packet(bytes);
});
