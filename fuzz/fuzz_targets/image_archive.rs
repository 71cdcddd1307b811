//! Archives of images whose index, manifest and configuration are hostile but have the digests that they should have.
#![no_main]

use std::sync::OnceLock;

use arbitrary::Arbitrary;
use images::{Images, Options};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};
use warren_fuzz::{Member, files, tar};

const OCI_LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

#[derive(Debug, Arbitrary)]
enum Archive {
    Raw(Vec<u8>),
    Index(Vec<u8>),
    Manifest(Vec<u8>),
    Config { config: Vec<u8>, layer: Vec<Member> },
    Docker(Vec<u8>),
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A layout whose index names `manifest`, with the blobs given.
fn layout(manifest: &[u8], blobs: &[&[u8]]) -> Vec<u8> {
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:{}","size":{}}}]}}"#,
        digest(manifest),
        manifest.len()
    );
    let named: Vec<_> = [manifest]
        .iter()
        .chain(blobs)
        .map(|blob| (format!("blobs/sha256/{}", digest(blob)), *blob))
        .collect();
    let mut all = vec![("oci-layout", OCI_LAYOUT), ("index.json", index.as_bytes())];
    all.extend(named.iter().map(|(name, blob)| (name.as_str(), *blob)));
    files(&all)
}

fn archive(given: &Archive) -> Vec<u8> {
    match given {
        Archive::Raw(bytes) => bytes.clone(),
        Archive::Index(index) => files(&[("oci-layout", OCI_LAYOUT), ("index.json", index)]),
        Archive::Docker(manifest) => files(&[("manifest.json", manifest)]),
        Archive::Manifest(manifest) => layout(manifest, &[]),
        Archive::Config { config, layer } => {
            let layer = tar(layer);
            let manifest = format!(
                r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:{}","size":{}}}]}}"#,
                digest(config),
                config.len(),
                digest(&layer),
                layer.len()
            );
            layout(manifest.as_bytes(), &[config, &layer])
        }
    }
}

fuzz_target!(|given: Archive| {
    static STORE: OnceLock<(tempfile::TempDir, tokio::runtime::Runtime, Images)> = OnceLock::new();
    let (_home, runtime, images) = STORE.get_or_init(|| {
        let home = tempfile::tempdir().expect("a temporary directory");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let images = runtime.block_on(Images::open(home.path(), Options::default())).expect("a store");
        (home, runtime, images)
    });
    let _outcome = runtime.block_on(images.load(std::io::Cursor::new(archive(&given)), None));
});
