//! `warren dashboard`

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use super::Context;
use crate::{env, error::CommandResult, output};

/// The page that leads the browser to the address, in the run directory.
const DOOR: &str = "dashboard.html";
/// Opens a file with the program that the user chose for it.
const OPENER: &str = "xdg-open";

/// Open the dashboard in a browser
///
/// Prints an address that signs a browser in once, within five minutes, as the user who runs the daemon, and opens it.
/// The daemon must listen on TCP, as `warren serve` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren dashboard
  warren dashboard --no-open")]
pub(crate) struct Args {
    /// Only print the address
    #[arg(long)]
    no_open: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let made = context.client().await?.once_address().await?;
    if context.json {
        output::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&made.address)?;
    let has_screen = env::text("DISPLAY").or_else(|| env::text("WAYLAND_DISPLAY")).is_some();
    if !args.no_open && has_screen {
        let opened = write_door(&context.directories.run, &made.address).and_then(|door| open(&door));
        if let Err(error) = opened {
            output::note(&format!("could not open a browser ({error}); open the address yourself"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A page that only this user can read. The address is a right, and other users see the arguments of programs.
fn write_door(run: &Path, address: &str) -> io::Result<PathBuf> {
    let (path, new) = (run.join(DOOR), run.join(format!("{DOOR}.new")));
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    let address = address.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={address}\"><title>Warren</title><a href=\"{address}\">Warren</a>"
    )?;
    fs::rename(&new, &path)?;
    Ok(path)
}

fn open(door: &Path) -> io::Result<()> {
    let quiet = || Stdio::null();
    let status = Command::new(OPENER).arg(door).stdin(quiet()).stdout(quiet()).stderr(quiet()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{OPENER} failed: {status}"))) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_its_user_can_read_the_way_in() {
        let run = tempfile::tempdir().unwrap();
        let door = write_door(run.path(), "http://127.0.0.1:5555/#once=\"<x>&").unwrap();
        assert_eq!(fs::metadata(&door).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&door).unwrap();
        assert!(text.contains("0;url=http://127.0.0.1:5555/#once=&quot;&lt;x>&amp;"), "{text}");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
    }
}
