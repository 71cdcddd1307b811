//! Takes values of secrets out of what a server sends: each is overwritten by asterisks, so lengths stay true.
//!
//! A value is found in whatever pieces it comes. Only bytes that could be its beginning wait for the next piece, so
//! answers that come bit by bit are not delayed.

use std::sync::Arc;

use base64::{
    Engine as _,
    engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use bytes::{Bytes, BytesMut};
use hyper::header::{self, HeaderMap, HeaderValue};

use super::{
    escapes::Escapes,
    pattern::{Pattern, Progress},
};

/// Stands in place of each byte of a value.
const MASK: u8 = b'*';
/// Shortest piece of Base64 that is looked for: shorter ones are in any text.
const MIN_ENCODED: usize = 6;

/// The byte patterns to look for: values, and the forms in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Vec<Pattern>);

impl Patterns {
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<_> =
            values.flat_map(forms).filter(|form| !form.is_empty()).flat_map(ways_of_writing).collect();
        all.sort();
        all.dedup();
        Self(all.into_iter().map(|(form, escapes)| Pattern::new(form, escapes)).collect())
    }

    /// Overwrites what is in a value of a header; `None` if there is nothing.
    fn scrub_whole(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut clean = value.to_vec();
        for pattern in &self.0 {
            pattern.search(&mut Progress::default(), 0, value, |found| clean[found].fill(MASK));
        }
        (clean != value).then_some(clean)
    }

    pub(crate) fn scrub_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in headers {
            // A number that must stay true, and tells nothing.
            if name != header::CONTENT_LENGTH
                && let Some(clean) = self.scrub_whole(value.as_bytes())
            {
                // Asterisks are allowed wherever a value was.
                *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static("*"));
            }
        }
    }
}

/// A value as it is sent: itself, and as part of Base64 in both alphabets.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.as_bytes().to_vec()];
    for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        forms.extend((0..3).filter_map(|before| in_base64(&alphabet, value.as_bytes(), before)));
    }
    forms
}

/// A form as it is, and with what encoders may have escaped in it. Encoders differ in what they escape and how, so all
/// ways of one sort are looked for at once.
fn ways_of_writing(form: Vec<u8>) -> Vec<(Vec<u8>, Option<Escapes>)> {
    let escaped = Escapes::ALL.into_iter().filter(|escapes| escapes.concern(&form));
    std::iter::once(None).chain(escaped.map(Some)).map(|escapes| (form.clone(), escapes)).collect()
}

/// The characters of Base64 that depend on a value alone when `before` bytes of something else precede it in its first
/// group of three: what stands in `Basic` credentials, whoever the user is.
fn in_base64(alphabet: &GeneralPurpose, value: &[u8], before: usize) -> Option<Vec<u8>> {
    let padded = [&[0; 3][..before], value].concat();
    let encoded = alphabet.encode(&padded);
    // Six bits a character: the first whole one after the bytes before, the last one within the value.
    let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
    let own = encoded.as_bytes().get(first..last)?;
    (own.len() >= MIN_ENCODED).then(|| own.to_vec())
}

/// Scrubs a stream of bytes.
#[derive(Debug)]
pub(crate) struct Scrubber {
    patterns: Arc<Patterns>,
    /// How far each pattern is.
    progress: Vec<Progress>,
    /// Bytes that may still turn out to be part of a value; what is part of one already is overwritten.
    held: BytesMut,
}

impl Scrubber {
    pub(crate) fn new(patterns: Arc<Patterns>) -> Self {
        let progress = patterns.0.iter().map(|_pattern| Progress::default()).collect();
        Self { patterns, progress, held: BytesMut::new() }
    }

    /// Takes a piece. Returns what is clean for certain.
    pub(crate) fn pass(&mut self, piece: Bytes) -> Bytes {
        let before = self.held.len();
        let mut hits = Vec::new();
        for (pattern, progress) in self.patterns.0.iter().zip(&mut self.progress) {
            pattern.search(progress, before, &piece, |found| hits.push(found));
        }
        let keep = self.progress.iter().map(Progress::held).max().unwrap_or(0);
        if before == 0 && hits.is_empty() {
            // The usual case, without a copy.
            let mut clean = piece;
            self.held.extend_from_slice(&clean.split_off(clean.len() - keep));
            return clean;
        }
        self.held.extend_from_slice(&piece);
        for found in hits {
            self.held[found].fill(MASK);
        }
        self.held.split_to(self.held.len() - keep).freeze()
    }

    /// The rest, when nothing follows.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.progress.fill_with(Progress::default);
        self.held.split().freeze()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn patterns(&self) -> &Patterns {
        &self.patterns
    }
}

/// Scrubs bytes in pieces and whole, which must come to the same. The first two bytes choose value and pieces.
#[doc(hidden)]
pub fn fuzz_scrub(bytes: &[u8]) {
    let [length, piece, rest @ ..] = bytes else { return };
    let (value, text) = rest.split_at(rest.len().min(usize::from(*length)));
    let Ok(value) = std::str::from_utf8(value) else { return };
    let patterns = Arc::new(Patterns::new(std::iter::once(value)));
    let mut scrubber = Scrubber::new(Arc::clone(&patterns));
    let mut clean = Vec::new();
    for piece in text.chunks(usize::from(*piece).max(1)) {
        clean.extend_from_slice(&scrubber.pass(Bytes::copy_from_slice(piece)));
    }
    clean.extend_from_slice(&scrubber.finish());
    assert_eq!(clean, patterns.scrub_whole(text).unwrap_or_else(|| text.to_vec()));
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    fn scrub(values: &[&str], pieces: &[&[u8]]) -> Vec<u8> {
        let mut scrubber = Scrubber::new(Arc::new(Patterns::new(values.iter().copied())));
        let mut all = Vec::new();
        for piece in pieces {
            all.extend_from_slice(&scrubber.pass(Bytes::copy_from_slice(piece)));
        }
        all.extend_from_slice(&scrubber.finish());
        all
    }

    #[test]
    fn values_are_overwritten_and_nothing_else() {
        assert_eq!(scrub(&["secret"], &[b"a secret, secre, secret"]), b"a ******, secre, ******");
        assert_eq!(scrub(&["aab"], &[b"aaa", b"", b"ab", b"aa"]), b"aa***aa");
        assert_eq!(scrub(&["abab"], &[b"xababab"]), b"x******");
        assert_eq!(scrub(&["abcd", "cdef"], &[b"abc", b"def"]), b"******");
        assert_eq!(scrub(&[], &[b"anything"]), b"anything");
    }

    #[test]
    fn only_what_could_be_a_value_waits() {
        let mut scrubber = Scrubber::new(Arc::new(Patterns::new(["secret"].into_iter())));
        assert_eq!(scrubber.pass(Bytes::from_static(b"data: hello\n\n")), "data: hello\n\n");
        assert_eq!(scrubber.pass(Bytes::from_static(b"the sec")), "the ");
        assert_eq!(scrubber.pass(Bytes::from_static(b"ond")), "second");
        assert_eq!(scrubber.held(), 0);
    }

    #[test]
    fn other_forms_of_a_value_are_found() {
        let value = "to-ken/with \"all\"+";
        for user in ["", "u", "us", "use", "user"] {
            let sent = STANDARD.encode(format!("{user}:{value}"));
            let clean = String::from_utf8(scrub(&[value], &[sent.as_bytes()])).unwrap();
            assert_eq!(clean.len(), sent.len());
            let left = clean.replace('*', "");
            assert!(left.len() <= sent.len() - value.len() * 8 / 6 + 2, "{sent} became {clean}");
        }
        assert_eq!(scrub(&["a b\"c"], &[b"?q=a%20b%22c&x"]), [b"?q=", &[MASK; 9][..], b"&x"].concat());
        assert_eq!(
            scrub(&["a b\"c"], &[b"{\"q\":\"a b\\\"c\"}"]),
            [b"{\"q\":\"", &[MASK; 6][..], b"\"}"].concat()
        );
    }

    #[test]
    fn a_value_is_found_however_an_encoder_escapes_it() {
        let value = "ab/c+d=='\"<&>~ z";
        for written in [
            // Addresses: everything, lower case, Python's quote(), JavaScript's encodeURIComponent() and encodeURI(),
            // forms.
            "ab%2Fc%2Bd%3D%3D%27%22%3C%26%3E~%20z",
            "ab%2fc%2bd%3d%3d%27%22%3c%26%3e%7e%20z",
            "ab/c%2Bd%3D%3D%27%22%3C%26%3E~%20z",
            "ab%2Fc%2Bd%3D%3D'%22%3C%26%3E~%20z",
            "ab/c+d=='%22%3C&%3E~%20z",
            "ab%2Fc%2Bd%3D%3D%27%22%3C%26%3E%7E+z",
            // JSON: Python, PHP, Go, .NET; a string of JavaScript.
            r#"ab/c+d=='\"<&>~ z"#,
            r#"ab\/c+d=='\"<&>~ z"#,
            r#"ab/c+d=='\"\u003c\u0026\u003e~ z"#,
            r#"ab\u002fc\u002Bd==\u0027\u0022\u003C\u0026\u003E~ z"#,
            r#"ab\x2fc+d==\'\"<\x26>~ z"#,
            // Pages.
            "ab/c+d=='&quot;&lt;&amp;&gt;~ z",
            "ab&#x2F;c+d&#61;&#x3d;&#39;&#34;&lt;&amp;&gt;~ z",
            "ab&#47;c&#43;d==&#x27;&quot;&lt;&amp;&gt;~ z",
            "ab&sol;c&plus;d&equals;&equals;&apos;&quot;&lt;&amp;&gt;~ z",
        ] {
            let clean = [b"<", &vec![MASK; written.len()][..], b">"].concat();
            let text = format!("<{written}>");
            assert_eq!(scrub(&[value], &[text.as_bytes()]), clean, "{written}");
            let pieces: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(scrub(&[value], &pieces), clean, "{written}, byte by byte");
        }
    }

    #[test]
    fn characters_that_only_some_encoders_escape_are_found() {
        let value = "sk-ab_c.d:e";
        for written in
            [r"sk\u002Dab_c.d:e", r"sk\x2dab_c.d\x3ae", "sk-ab&lowbar;c&period;d&colon;e", "sk-ab_c.d%3Ae"]
        {
            assert_eq!(scrub(&[value], &[written.as_bytes()]), vec![MASK; written.len()], "{written}");
        }
        assert_eq!(scrub(&["sk-abc"], &[br"sk\u002Dabc"]), vec![MASK; 11]);
        assert_eq!(scrub(&["sk_abc"], &[b"sk&lowbar;abc"]), vec![MASK; 13]);
    }

    #[test]
    fn pieces_make_no_difference_to_a_value_that_begins_with_a_blank() {
        let text = b"% a+b";
        let whole = scrub(&[" a b"], &[text]);
        assert_eq!(whole, b"%****");
        assert_eq!(scrub(&[" a b"], &[&text[..1], &text[1..]]), whole);
    }

    #[test]
    fn base64_of_a_value_is_found_in_both_alphabets_and_escaped() {
        use base64::engine::general_purpose::URL_SAFE;

        let value = "to?ken>with~all???>>>";
        let standard = STANDARD.encode(format!("us:{value}"));
        assert!(standard.contains('/') && standard.contains('+'), "{standard}");
        for sent in [
            URL_SAFE.encode(format!("us:{value}")),
            standard.replace('/', "\\/"),
            standard.replace('/', "%2F").replace('+', "%2b"),
            standard.clone(),
        ] {
            let clean = String::from_utf8(scrub(&[value], &[sent.as_bytes()])).unwrap();
            let left = clean.replace('*', "");
            assert!(left.len() <= sent.len() - value.len() * 8 / 6 + 2, "{sent} became {clean}");
        }
    }

    #[test]
    fn what_is_no_escape_waits_no_longer_than_it_must() {
        let mut scrubber = Scrubber::new(Arc::new(Patterns::new(["a/b"].into_iter())));
        assert_eq!(scrubber.pass(Bytes::from_static(b"100% & \\n \\")), "100% & \\n ");
        assert_eq!(scrubber.pass(Bytes::from_static(b"n a\\u0")), "\\n ");
        assert_eq!(scrubber.pass(Bytes::from_static(b"02fc")), "a\\u002fc");
        assert_eq!(scrubber.pass(Bytes::from_static(b"&am")), "");
        assert_eq!(scrubber.finish(), "&am");
    }

    #[test]
    fn headers_are_scrubbed() {
        let mut headers = HeaderMap::new();
        headers.append("location", HeaderValue::from_static("https://a.example/?token=secret&x=1"));
        headers.append("content-length", HeaderValue::from_static("12"));
        headers.append("etag", HeaderValue::from_static("\"x\""));
        Patterns::new(["secret", "12"].into_iter()).scrub_headers(&mut headers);
        assert_eq!(headers["location"], "https://a.example/?token=******&x=1");
        assert_eq!(headers["content-length"], "12");
        assert_eq!(headers["etag"], "\"x\"");
    }

    proptest! {
        /// Few letters, so that beginnings of values are everywhere.
        #[test]
        fn pieces_make_no_difference(
            values in prop::collection::vec("[ab]{1,6}", 1..4),
            text in "[abc]{0,60}",
            cuts in prop::collection::vec(0usize..60, 0..12),
        ) {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|two| &text.as_bytes()[two[0]..two[1]]).collect();
            let clean = scrub(&values, &pieces);
            let mut expected = text.clone().into_bytes();
            for form in values.iter().flat_map(|value| forms(value)) {
                for start in 0..text.len() {
                    if text.as_bytes()[start..].starts_with(&form) {
                        expected[start..start + form.len()].fill(MASK);
                    }
                }
            }
            prop_assert_eq!(clean, expected);
        }

        /// Nor do they when anything may be escaped, or look so.
        #[test]
        fn pieces_make_no_difference_to_escapes(
            value in "[a/+]{1,5}",
            text in prop::collection::vec(prop::sample::select(vec![
                "a", "/", "+", "%2f", "%2F", "%2B", "\\/", "\\u002f", "&#x2f;", "&sol;", "%", "\\", "&", "2f", "&#", "u0",
            ]), 0..30),
            length in 1usize..9,
        ) {
            let text = text.concat();
            let patterns = Patterns::new(std::iter::once(value.as_str()));
            let whole = patterns.scrub_whole(text.as_bytes()).unwrap_or_else(|| text.clone().into_bytes());
            let pieces: Vec<_> = text.as_bytes().chunks(length).collect();
            prop_assert_eq!(scrub(&[&value], &pieces), whole);
        }
    }
}
