//! The certificates that programs trust in a sandbox with secrets: the host's, and that of the sandbox's own authority.

use std::{env, fs::File, io::Read, path::PathBuf};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use guest_protocol::{Request, Response, WriteMode};
use sandbox::{CA_BUNDLE, Error, ErrorKind, Result};

use crate::{client::GuestClient, core::Core, disk::may_block, error};

/// Where systems keep all their roots in one file.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// A larger bundle is not used: a usual one has a quarter of a megabyte.
const MAX_BUNDLE_BYTES: u64 = 4 * 1024 * 1024;

/// Writes the bundle before anything runs. `/run` is empty at each start, and root's.
pub(crate) async fn trust(core: &Core, client: &GuestClient, certificate: &str) -> Result<()> {
    let bundle = may_block(|| bundle(certificate));
    let (directory, _) = CA_BUNDLE.rsplit_once('/').unwrap_or_default();
    let make = Request::Mkdir { path: directory.to_owned(), parents: true, mode: Some(0o755) };
    let write = Request::Write {
        path: CA_BUNDLE.to_owned(),
        write: WriteMode::Replace,
        mode: Some(0o644),
        parents: false,
    };
    let bytes = stream::iter([Ok(Bytes::from(bundle))]).boxed();
    let written = async {
        client.call(&make).await?;
        client.upload(&write, bytes, Some(core.config.deadlines.answer)).await
    };
    match written.await.map_err(|error| error::from_guest(error, client.label()))? {
        Response::Written { .. } => Ok(()),
        _ => Err(Error::new(ErrorKind::Unavailable, "the guest did not say that it wrote its certificates")),
    }
}

fn bundle(certificate: &str) -> String {
    let mut bundle = host_roots().unwrap_or_else(|| {
        tracing::warn!(
            "this system has no bundle of certificates: sandboxes with secrets trust their own only"
        );
        String::new()
    });
    if !bundle.is_empty() && !bundle.ends_with('\n') {
        bundle.push('\n');
    }
    bundle.push_str(certificate);
    bundle
}

fn host_roots() -> Option<String> {
    let chosen = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    chosen.into_iter().chain(BUNDLES.map(PathBuf::from)).find_map(|path| {
        let mut text = String::new();
        let n_read = File::open(path).ok()?.take(MAX_BUNDLE_BYTES + 1).read_to_string(&mut text).ok()?;
        (n_read > 0 && n_read as u64 <= MAX_BUNDLE_BYTES).then_some(text)
    })
}
