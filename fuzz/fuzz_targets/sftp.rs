//! Packets of an SFTP client, as the guest reads them. The session is read-only: the files are the fuzzer's own host's.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    guest::fuzz_sftp(bytes);
    // Most inputs do not begin a session by themselves.
    guest::fuzz_sftp(&[b"\0\0\0\x05\x01\0\0\0\x03", bytes].concat());
});
