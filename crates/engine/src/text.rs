//! Decodes output that arrives in pieces, which may end in the middle of a character.

/// Returns whole characters; invalid bytes become the replacement character.
#[derive(Debug, Default)]
pub struct TextDecoder {
    /// The beginning of a character: at most three bytes.
    rest: Vec<u8>,
}

impl TextDecoder {
    pub fn take(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // An invalid byte somewhere: the end may still be the beginning of a character.
            Err(_) => all.len() - begun(&all),
            Ok(_) => all.len(),
        };
        self.rest = all.split_off(whole);
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// How many bytes at the end begin a character without completing it.
fn begun(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(3)..];
    (1..=last.len())
        .rev()
        .find(|length| {
            let tail = &last[last.len() - length..];
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_put_together_again() {
        let text = "aé漢😀z";
        for at in 0..text.len() {
            let mut decoder = TextDecoder::default();
            let (one, other) = text.as_bytes().split_at(at);
            assert_eq!(decoder.take(one) + &decoder.take(other), text, "{at}");
        }
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.take(b"\xff\xe6\xbc"), "\u{fffd}");
        assert_eq!(decoder.take(b"\xa2"), "漢");
    }
}
