//! `tools/list` of a surface that shows every client the same list, answered with bytes that were made once.
//!
//! The longest such list has 97 KB. To serialise it for each client and to frame it as an event takes the library about
//! as long as everything else that a request needs.

use axum::{
    body::{Body, Bytes},
    http::{
        HeaderMap, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use rmcp::model;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::listing;
use crate::mcp::{Toolsets, surface::Surface};

const METHOD: &str = "tools/list";
const VERSION_HEADER: &str = "mcp-protocol-version";
/// The revisions with sessions. Requests of later ones carry headers that the library checks.
const VERSIONS: &[&str] = &["2025-03-26", "2025-06-18", "2025-11-25"];
/// Longest message that is looked into; one that asks for the list is shorter.
const MAX_LOOKED_AT_BYTES: usize = 512;
/// Longest id of a request, as JSON.
const MAX_ID_BYTES: usize = 128;

/// The result of `tools/list` as JSON, in the form of the revisions with sessions.
pub(super) fn json(surface: &Surface) -> Option<Bytes> {
    #[derive(Serialize)]
    struct Result {
        tools: Vec<model::Tool>,
    }

    let result = Result { tools: listing::tools(surface, &Toolsets::all()) };
    serde_json::to_vec(&result).map(Bytes::from).ok()
}

/// The id of a message that asks for the whole list and for nothing else; anything else is the library's to answer.
pub(super) fn asked<'a>(message: &'a [u8], headers: &HeaderMap) -> Option<&'a RawValue> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked<'a> {
        jsonrpc: &'a str,
        #[serde(borrow)]
        id: &'a RawValue,
        method: &'a str,
        #[serde(default)]
        params: Option<NoParams>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoParams {}

    if message.len() > MAX_LOOKED_AT_BYTES || !is_of_sessions(headers) {
        return None;
    }
    let asked: Asked<'_> = serde_json::from_slice(message).ok()?;
    let id = asked.id.get();
    let is_id = id.len() <= MAX_ID_BYTES && (id.starts_with('"') || id.parse::<i64>().is_ok());
    let NoParams {} = asked.params.unwrap_or(NoParams {});
    (asked.jsonrpc == "2.0" && asked.method == METHOD && is_id).then_some(asked.id)
}

fn is_of_sessions(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION_HEADER).map(HeaderValue::to_str);
    version.is_none_or(|version| version.is_ok_and(|version| VERSIONS.contains(&version)))
}

pub(super) fn answer(id: &RawValue, list: &Bytes) -> Response {
    let (before, after) = (format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.get()), "}");
    let mut message = Vec::with_capacity(before.len() + list.len() + after.len());
    message.extend_from_slice(before.as_bytes());
    message.extend_from_slice(list);
    message.extend_from_slice(after.as_bytes());
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from(message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_request_for_the_list_is_one() {
        let none = HeaderMap::new();
        let id = |message: &str| asked(message.as_bytes(), &none).map(|id| id.get().to_owned());
        let message = |rest: &str| format!(r#"{{"jsonrpc":"2.0","method":"tools/list"{rest}}}"#);
        assert_eq!(id(&message(r#","id":7"#)).as_deref(), Some("7"));
        assert_eq!(id(&message(r#","id":"a\"b","params":{}"#)).as_deref(), Some(r#""a\"b""#));
        assert_eq!(id(&message(r#","id":1,"params":null"#)).as_deref(), Some("1"));

        for refused in [
            "",
            r#","id":null"#,
            r#","id":1.5"#,
            r#","id":{"a":1}"#,
            r#","id":1,"id":2"#,
            r#","id":1,"params":{"cursor":"x"}"#,
            r#","id":1,"params":{"_meta":{"progressToken":1}}"#,
            r#","id":1,"other":1"#,
        ] {
            assert_eq!(id(&message(refused)), None, "{refused}");
        }
        assert_eq!(id(r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#), None);
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#), None);
        assert_eq!(id(&message(&format!(r#","id":"{}""#, "x".repeat(600)))), None);
    }

    #[test]
    fn later_revisions_are_left_to_the_library() {
        let message = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        for (version, is_ours) in [("2025-06-18", true), ("2026-07-28", false), ("1999-01-01", false)] {
            let headers =
                HeaderMap::from_iter([(VERSION_HEADER.parse().unwrap(), HeaderValue::from_static(version))]);
            assert_eq!(asked(message, &headers).is_some(), is_ours, "{version}");
        }
    }
}
