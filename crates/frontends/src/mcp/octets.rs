//! Bytes that callers write down as base64.

use base64::{
    DecodeError, Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// With padding or without.
const EITHER: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes, by whatever program they were written: in either alphabet, in lines, with padding or without.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    let plain = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    });
    EITHER.decode(plain.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_lines_and_missing_padding_are_read() {
        for text in ["+/+/AA==", "-_-_AA==", "+/+/AA", "+/+/AA=", " +/+/\r\nA\tA==\n"] {
            assert_eq!(from_base64(text).unwrap(), [0xfb, 0xff, 0xbf, 0], "{text:?}");
        }
        assert!(from_base64("\n").unwrap().is_empty());
        for text in ["A", "AA=A", "A!AA", "AB=="] {
            assert!(from_base64(text).is_err(), "{text:?}");
        }
    }
}
