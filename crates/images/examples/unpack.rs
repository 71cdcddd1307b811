//! Times the unpack of one layer: `unpack <blob> <empty directory>`. What to hold it against: `zstd -dc blob | tar -x
//! -C dir`.
#![expect(clippy::print_stdout, reason = "the numbers are the point")]

use std::{
    env,
    error::Error,
    fs::{self, File},
    os::fd::AsFd as _,
    time::Instant,
};

fn main() -> Result<(), Box<dyn Error>> {
    let [blob, directory] = &env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: unpack <blob> <empty directory>".into());
    };
    fs::create_dir_all(directory)?;
    let into = File::open(directory)?;
    let begun = Instant::now();
    let unpacked = images::unpack_layer(File::open(blob)?, into.as_fd(), &images::UnpackOptions::default())?;
    let written = begun.elapsed();
    rustix::fs::syncfs(&into)?;
    println!(
        "{} entries, {} MB: {:.3} s, {:.3} s with syncfs",
        unpacked.n_entries,
        unpacked.tar_bytes / 1_000_000,
        written.as_secs_f32(),
        begun.elapsed().as_secs_f32()
    );
    println!("{} {:?}", unpacked.diff_id, unpacked.warnings);
    Ok(())
}
