//! Frames between host and guest, as either side reads what a hostile other side sent.
#![no_main]

use bytes::BytesMut;
use guest_protocol::{Decoder, ExecEvent, Hello, Request, Response, Rich};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = decoder.decode(&mut buffer) {
        let _host = (frame.parse::<Response>(), frame.parse::<Hello>(), frame.parse::<Rich>());
        let _guest = frame.parse::<Request>();
        if let Ok((number, event)) = ExecEvent::from_frame(&frame) {
            let again = event.to_frame(number).expect("what was read can be written");
            assert_eq!(ExecEvent::from_frame(&again).expect("and read again"), (number, event));
        }
        let _number = frame.acked();
    }
});
