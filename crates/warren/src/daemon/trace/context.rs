//! The trace that a span belongs to, as the W3C has it on the wire.

/// `00-<trace id>-<span id>-<flags>`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
}

impl SpanContext {
    /// Reads a `traceparent`. A caller's, so anything may be in it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = bytes::<1>(version)?[0];
        // A later version may have more parts; the first has these four.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (bytes::<16>(trace)?, bytes::<8>(span)?);
        let is_sampled = bytes::<1>(flags)?[0] & 1 == 1;
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, is_sampled })
    }
}

/// Lower-case hexadecimal digits, exactly as many.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut found = [0; N];
    for (byte, pair) in found.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(found)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_are_read() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = SpanContext::parse(text).unwrap();
        assert_eq!(hex(&context.trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((hex(&context.span).as_str(), context.is_sampled), ("b7ad6b7169203331", true));
        assert!(!SpanContext::parse(&text.replace("-01", "-00")).unwrap().is_sampled);
        assert!(SpanContext::parse(&text.replace("00-", "cc-").replace("-01", "-01-what-follows")).is_some());
    }

    #[test]
    fn anything_else_is_no_context() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c8031é-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            &format!("{good}-more"),
        ] {
            assert_eq!(SpanContext::parse(text), None, "{text}");
        }
    }
}
