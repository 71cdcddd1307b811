//! Signatures as the Standard Webhooks specification has them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sandbox::{Error, Result};
use sha2::Sha256;

/// A secret with this beginning is base64; any other is its bytes.
const PREFIX: &str = "whsec_";

#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    pub(super) fn new(secret: &str) -> Result<Self> {
        let bytes = match secret.strip_prefix(PREFIX) {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_not_base64| {
                Error::invalid(format!("the webhook's secret begins with {PREFIX} but is not base64"))
            })?,
            None => secret.as_bytes().to_vec(),
        };
        let mac = Hmac::new_from_slice(&bytes)
            .map_err(|_length| Error::invalid("the webhook's secret cannot be used"))?;
        Ok(Self(mac))
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn the_published_example_has_its_published_signature() {
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(Signer::new("whsec_?").is_err());
    }
}
