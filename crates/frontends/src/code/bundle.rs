//! One thing in several forms, by MIME type. Whatever stands in it was written by the workload.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::MimeBundle;
use serde_json::Value;

const MAX_MIME_BYTES: usize = 127;
/// Forms that one thing may have; the others are left out.
pub(super) const MAX_FORMS: usize = 16;
/// Pictures that every client shows, the better ones first.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The forms that stand for a thing where only one can, the one that shows most first.
const BEST_FIRST: [&str; 5] =
    ["application/pdf", "text/html", "text/markdown", "text/latex", "application/json"];

/// One form of a thing, as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) mime_type: String,
    pub(crate) bytes: Vec<u8>,
}

/// Forms with a MIME type that is one, lower case and without parameters, in the bundle's order.
pub(super) fn forms(bundle: &MimeBundle) -> impl Iterator<Item = (&str, &Value)> {
    let named = bundle.iter().filter(|(mime, value)| is_mime_type(mime) && !value.is_null());
    named.map(|(mime, value)| (mime.as_str(), value)).take(MAX_FORMS)
}

/// `type/subtype` in the characters that a header takes.
fn is_mime_type(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$&^_.+-".contains(&byte)
            })
    };
    let is_split = |(kind, rest): (&str, &str)| is_token(kind) && is_token(rest);
    text.len() <= MAX_MIME_BYTES && text.split_once('/').is_some_and(is_split)
}

pub(super) fn is_picture(mime: &str) -> bool {
    PICTURES.contains(&mime)
}

/// The picture of a thing, if it has one that clients show.
pub(super) fn picture(bundle: &MimeBundle) -> Option<Form> {
    PICTURES.into_iter().find_map(|mime| form(bundle, mime))
}

/// The type of the form that shows most.
pub(super) fn best(mime_types: &[String]) -> Option<&str> {
    let known = PICTURES.into_iter().chain(["image/svg+xml"]).chain(BEST_FIRST);
    let best = known.into_iter().find(|known| mime_types.iter().any(|mime| mime == known));
    let other = || mime_types.iter().find(|mime| *mime != "text/plain").or(mime_types.first());
    best.or_else(|| other().map(String::as_str))
}

/// The best form, or the one that is asked for.
pub(super) fn chosen(bundle: &MimeBundle, mime: Option<&str>) -> Option<Form> {
    if let Some(mime) = mime {
        return form(bundle, mime);
    }
    let known = PICTURES.into_iter().chain(["image/svg+xml"]).chain(BEST_FIRST);
    let best = known.into_iter().find_map(|mime| form(bundle, mime));
    // Of what is left, plain text is for what nothing else shows.
    let other = || forms(bundle).map(|(mime, _)| mime).find(|mime| *mime != "text/plain");
    best.or_else(|| other().and_then(|mime| form(bundle, mime))).or_else(|| form(bundle, "text/plain"))
}

fn form(bundle: &MimeBundle, mime: &str) -> Option<Form> {
    let (mime, value) = forms(bundle).find(|(known, _)| *known == mime)?;
    Some(Form { mime_type: mime.to_owned(), bytes: bytes_of(mime, value)? })
}

/// Text is text, JSON is JSON, everything else is base64, except where it cannot be.
fn bytes_of(mime: &str, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) if mime.starts_with("text/") => Some(text.clone().into_bytes()),
        _ if is_json(mime) => serde_json::to_vec(value).ok(),
        Value::String(text) => {
            let coded: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            match BASE64_STANDARD.decode(coded) {
                Ok(bytes) => Some(bytes),
                // SVG, scripts: other writers give such things as text.
                Err(_) if !is_picture(mime) => Some(text.clone().into_bytes()),
                Err(_) => None,
            }
        }
        other => serde_json::to_vec(other).ok(),
    }
}

pub(super) fn is_json(mime: &str) -> bool {
    mime == "application/json" || mime.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(forms: &[(&str, Value)]) -> MimeBundle {
        forms.iter().map(|(mime, value)| ((*mime).to_owned(), value.clone())).collect()
    }

    #[test]
    fn the_form_that_shows_most_stands_for_the_thing() {
        let figure = bundle(&[("image/png", json!("aGk=\n")), ("text/plain", json!("<Figure>"))]);
        assert_eq!(
            chosen(&figure, None),
            Some(Form { mime_type: "image/png".into(), bytes: b"hi".to_vec() })
        );
        assert_eq!(chosen(&figure, Some("text/plain")).unwrap().bytes, b"<Figure>");
        assert_eq!(chosen(&figure, Some("text/html")), None);
        let frame = bundle(&[("text/html", json!("<table>")), ("text/plain", json!("a b"))]);
        assert_eq!(chosen(&frame, None).unwrap().mime_type, "text/html");
        let odd = bundle(&[("application/x-thing", json!("aGk=")), ("text/plain", json!("thing"))]);
        assert_eq!(chosen(&odd, None).unwrap().bytes, b"hi");
        let drawing = bundle(&[("image/svg+xml", json!("<svg/>"))]);
        assert_eq!(chosen(&drawing, None).unwrap().bytes, b"<svg/>");
        let value = bundle(&[("application/json", json!({ "a": 1 }))]);
        assert_eq!(chosen(&value, None).unwrap().bytes, b"{\"a\":1}");
    }

    #[test]
    fn what_is_no_form_is_left_out() {
        for mime in [
            "",
            "png",
            "image/",
            "Image/PNG",
            "image/png\r\nX: y",
            "a/b; c=d",
            &format!("a/{}", "x".repeat(200)),
        ] {
            assert_eq!(forms(&bundle(&[(mime, json!("x"))])).count(), 0, "{mime:?}");
        }
        assert_eq!(picture(&bundle(&[("image/png", json!("not base64!"))])), None);
        assert_eq!(picture(&bundle(&[("image/png", json!(7))])).map(|form| form.bytes), Some(b"7".to_vec()));
        assert_eq!(forms(&bundle(&[("text/plain", Value::Null)])).count(), 0);
        let many: Vec<_> = (0..100).map(|n| (format!("a/{n}"), json!("x"))).collect();
        assert_eq!(forms(&many.into_iter().collect()).count(), MAX_FORMS);
    }
}
