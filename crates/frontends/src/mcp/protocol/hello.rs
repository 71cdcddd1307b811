//! The parts of a client's first message that are kept for as long as its session lasts.

use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, ClientJsonRpcMessage, ClientRequest, GetMeta as _, Implementation, RequestId,
    },
};

use super::events;

/// Longest name, and version, that is kept of a client, in characters.
const MAX_NAME_CHARS: usize = 256;
/// Longest `initialize` message that is taken.
const MAX_HELLO_BYTES: usize = 64 * 1024;

/// A first message that says too much.
#[derive(Debug)]
pub(super) struct TooLong {
    pub(super) id: RequestId,
    pub(super) error: ErrorData,
}

/// Leaves of an `initialize` message what we use. The library keeps it whole, and it may be as long as any message.
pub(super) fn cut(message: &mut ClientJsonRpcMessage) -> Result<(), TooLong> {
    let n_bytes = match message {
        ClientJsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::InitializeRequest(_)) =>
        {
            events::json_size(message)
        }
        _ => return Ok(()),
    };
    let ClientJsonRpcMessage::Request(request) = message else { return Ok(()) };
    if n_bytes > MAX_HELLO_BYTES {
        let text = format!("the initialize message has {n_bytes} bytes; the limit is {MAX_HELLO_BYTES}");
        return Err(TooLong { id: request.id.clone(), error: ErrorData::invalid_request(text, None) });
    }
    request.request.get_meta_mut().clear();
    let ClientRequest::InitializeRequest(hello) = &mut request.request else { return Ok(()) };
    let client = &hello.params.client_info;
    hello.params.client_info = Implementation::new(short(&client.name), short(&client.version));
    hello.params.meta = None;
    let ClientCapabilities { experimental, extensions, .. } = &mut hello.params.capabilities;
    (*experimental, *extensions) = (None, None);
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hello(n_chars: usize) -> ClientJsonRpcMessage {
        let long = "x".repeat(n_chars);
        serde_json::from_value(json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18",
                "_meta": { "x": long },
                "capabilities": { "sampling": {}, "experimental": { "x": { "x": long } } },
                "clientInfo": { "name": long, "version": long, "title": long, "websiteUrl": long },
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_kept_of_a_client_is_short() {
        let mut message = hello(5000);
        cut(&mut message).unwrap();
        let kept = serde_json::to_string(&message).unwrap();
        assert!(kept.len() < 1000 && kept.contains(&"x".repeat(MAX_NAME_CHARS)), "{kept:.2000}");
        assert!(kept.contains("sampling"), "what it can do is still known: {kept:.2000}");
    }

    #[test]
    fn a_first_message_that_is_too_long_is_refused() {
        let refused = cut(&mut hello(MAX_HELLO_BYTES)).unwrap_err();
        assert!(refused.error.message.contains("65536"), "{refused:?}");
    }
}
