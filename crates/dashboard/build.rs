//! Compresses the dashboard's page (`web/dist`, which is committed) and writes the table of its files.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

fn main() -> Result<(), Box<dyn Error>> {
    let page = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../web/dist");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", page.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    list(&page, &page, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (number, path) in files.iter().enumerate() {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(&fs::read(page.join(path))?)?;
        let stored = out.join(format!("{number}.gz"));
        fs::write(&stored, compressed.finish()?)?;
        writeln!(table, "    ({path:?}, include_bytes!({:?})),", stored.display().to_string())?;
    }
    table.push(']');
    fs::write(out.join("files.rs"), table)?;
    Ok(())
}

/// All files beneath `directory`, as paths from `top`.
fn list(top: &Path, directory: &Path, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list(top, &path, files)?;
        } else {
            let below = path.strip_prefix(top)?.to_str().ok_or("a file of the page has no plain name")?;
            files.push(below.to_owned());
        }
    }
    Ok(())
}
