//! Agreement on a protocol version.
//!
//! Guests outlive daemons, so either side may be the older one. Messages are added and never redefined: both use the
//! lower of the two versions, and neither sends newer messages. The guest states its versions in [`Hello`]; the host
//! states its own in each request, because hosts before version 3 sent no greeting.

use serde::{Deserialize, Serialize};

use crate::{Frame, FrameKind, ProtocolError, Request, codec::malformed};

/// Grows by one when a message is added; [`Request::since`] has the version of each.
pub const PROTOCOL_VERSION: u32 = 6;
/// The oldest version that this build still speaks.
pub const OLDEST_VERSION: u32 = 1;
/// The version of a host that states none: the last one before hosts did.
const UNSTATED_VERSION: u32 = 2;

/// The guest's first frame on every connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    /// The oldest version that the guest still speaks.
    #[serde(default = "first_version")]
    pub oldest: u32,
    /// The guest's build, for the log.
    pub build: String,
}

fn first_version() -> u32 {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other side speaks versions {oldest} to {newest} of the guest protocol; this one speaks {OLDEST_VERSION} to \
     {PROTOCOL_VERSION}"
)]
pub struct VersionMismatch {
    pub oldest: u32,
    pub newest: u32,
}

/// The version to use with a peer.
fn agree(oldest: u32, newest: u32) -> Result<u32, VersionMismatch> {
    let agreed = newest.min(PROTOCOL_VERSION);
    if agreed < OLDEST_VERSION || agreed < oldest {
        return Err(VersionMismatch { oldest, newest });
    }
    Ok(agreed)
}

impl Hello {
    /// This build's own greeting.
    pub fn of_build(build: impl Into<String>) -> Self {
        Self { version: PROTOCOL_VERSION, oldest: OLDEST_VERSION, build: build.into() }
    }

    /// The version to use with the guest that sent this.
    pub fn agree(&self) -> Result<u32, VersionMismatch> {
        agree(self.oldest, self.version)
    }
}

#[derive(Serialize)]
struct Stated<'a> {
    version: u32,
    #[serde(flatten)]
    request: &'a Request,
}

#[derive(Deserialize)]
struct HostVersion {
    #[serde(default)]
    version: Option<u32>,
}

impl Frame {
    /// A request, with the version of the host that sends it.
    pub fn request(request: &Request) -> Result<Self, ProtocolError> {
        let stated = Stated { version: PROTOCOL_VERSION, request };
        let payload = serde_json::to_vec(&stated).map_err(malformed(FrameKind::Request))?;
        Ok(Self::new(FrameKind::Request, payload))
    }

    /// The version to use with the host that sent this request.
    pub fn agree_with_host(&self) -> Result<Result<u32, VersionMismatch>, ProtocolError> {
        let stated: HostVersion = serde_json::from_slice(&self.payload).map_err(malformed(self.kind))?;
        let newest = stated.version.unwrap_or(UNSTATED_VERSION);
        // A host enforces its own oldest version: it hears ours first.
        Ok(agree(OLDEST_VERSION, newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_speak_the_lower_version_or_refuse() {
        let hello = |oldest, version| Hello { version, oldest, build: String::new() };
        assert_eq!(Hello::of_build("").agree(), Ok(PROTOCOL_VERSION));
        assert_eq!(hello(1, 2).agree(), Ok(2));
        assert_eq!(hello(1, PROTOCOL_VERSION + 7).agree(), Ok(PROTOCOL_VERSION));
        assert_eq!(hello(1, 0).agree(), Err(VersionMismatch { oldest: 1, newest: 0 }));
        let newer = PROTOCOL_VERSION + 1;
        assert_eq!(hello(newer, newer).agree(), Err(VersionMismatch { oldest: newer, newest: newer }));
        let old: Hello = serde_json::from_str(r#"{"version":2,"build":"0.1"}"#).unwrap();
        assert_eq!(old, Hello { version: 2, oldest: 1, build: "0.1".to_owned() });
    }

    #[test]
    fn a_request_states_the_version_of_its_host() {
        let request = Request::Stat { path: "/a".to_owned(), follow: true };
        let frame = Frame::request(&request).unwrap();
        assert_eq!(frame.parse::<Request>().unwrap(), request);
        assert_eq!(frame.agree_with_host().unwrap(), Ok(PROTOCOL_VERSION));
        let of = |text: &'static str| Frame::new(FrameKind::Request, text.as_bytes()).agree_with_host();
        assert_eq!(of(r#"{"op":"ping"}"#).unwrap(), Ok(2));
        assert_eq!(
            of(r#"{"op":"ping","version":0}"#).unwrap(),
            Err(VersionMismatch { oldest: 1, newest: 0 })
        );
        assert!(of(r#"{"op":"ping","version":"new"}"#).is_err());
    }
}
