//! Every route of the REST API with hostile paths, queries and bodies. No input makes it the daemon's own fault.
#![no_main]

use std::sync::OnceLock;

use arbitrary::Arbitrary;
use axum::http::Method;
use libfuzzer_sys::fuzz_target;
use warren_fuzz::Daemon;

#[derive(Debug, Arbitrary)]
struct Call {
    route: u16,
    words: [Word; 3],
    query: Option<String>,
    body: Vec<u8>,
}

/// What stands in a route's place for a name.
#[derive(Debug, Arbitrary)]
enum Word {
    Known,
    Given(String),
}

impl Word {
    fn text(&self) -> String {
        match self {
            Self::Known => "known".to_owned(),
            Self::Given(text) => text.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        }
    }
}

/// Method, path and type of the body of every operation in our own description of the API.
fn routes() -> &'static [(Method, String, String)] {
    static ROUTES: OnceLock<Vec<(Method, String, String)>> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let document = serde_json::to_value(frontends::rest::document()).expect("JSON");
        let mut routes = Vec::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations") {
                let Ok(method) = method.to_uppercase().parse() else { continue };
                let content = operation["requestBody"]["content"].as_object();
                let kind = content.and_then(|content| content.keys().next());
                let kind = kind.map_or("application/json", String::as_str).to_owned();
                routes.push((method, path.clone(), kind));
            }
        }
        routes
    })
}

fuzz_target!(|call: Call| {
    let daemon = Daemon::get();
    let json = [("content-type", "application/json")];
    static KNOWN: OnceLock<()> = OnceLock::new();
    KNOWN.get_or_init(|| daemon.ask(Method::POST, "/v1/sandboxes", &json, br#"{"name":"known"}"#));
    let (method, path, kind) = &routes()[usize::from(call.route) % routes().len()];
    let mut words = call.words.iter();
    let mut target = String::new();
    for part in path.split('/').skip(1) {
        target.push('/');
        match part.starts_with('{') {
            true => target.push_str(&words.next().map_or_else(String::new, Word::text)),
            false => target.push_str(part),
        }
    }
    if let Some(query) = &call.query {
        target.push('?');
        target.extend(query.chars().filter(|letter| letter.is_ascii_graphic()));
    }
    daemon.ask(method.clone(), &target, &[("content-type", kind)], &call.body);
});
