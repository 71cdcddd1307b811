//! Test images: many small layers, and one large one.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use images::Digest;
use serde_json::json;

/// A tar as `docker save` writes it, of an image with `n_layers` layers: each has one directory and one file of its
/// own.
pub(super) fn layered(name: &str, n_layers: usize) -> io::Result<Vec<u8>> {
    let layers = (0..n_layers).map(layer).collect::<io::Result<Vec<_>>>()?;
    let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let config = json!({
        "architecture": images::Platform::host().architecture,
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let names: Vec<_> = (0..n_layers).map(|number| format!("{number}.tar")).collect();
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": names }]);
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
    append(&mut archive, "config.json", config.to_string().as_bytes())?;
    for (name, layer) in names.iter().zip(&layers) {
        append(&mut archive, name, layer)?;
    }
    archive.into_inner()
}

/// The file in the layer of that number.
pub(super) fn path_in(number: usize) -> String {
    format!("data/{number}/file")
}

fn layer(number: usize) -> io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, &path_in(number), format!("of layer {number}\n").as_bytes())?;
    layer.into_inner()
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, bytes)
}

/// A layer of `wanted` bytes of the host's own programs and libraries, compressed like in registries. Returns the size
/// of its files.
pub(super) fn large(into: &Path, wanted: u64) -> io::Result<u64> {
    let compressed = GzEncoder::new(BufWriter::new(File::create(into)?), Compression::new(6));
    let mut layer = tar::Builder::new(compressed);
    layer.follow_symlinks(false);
    let mut taken = 0;
    let mut waiting: Vec<PathBuf> = ["/usr/lib", "/usr/share", "/usr/bin"].map(PathBuf::from).to_vec();
    while let Some(directory) = waiting.pop() {
        let mut entries: Vec<_> = fs::read_dir(&directory)?.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && taken < wanted {
                let name = path.strip_prefix("/").unwrap_or(&path);
                // Unreadable files are left out.
                if let Ok(mut file) = File::open(&path) {
                    taken += file.metadata()?.len();
                    layer.append_file(name, &mut file)?;
                }
            }
        }
        if taken >= wanted {
            break;
        }
    }
    layer.into_inner()?.finish()?.flush()?;
    Ok(taken)
}
