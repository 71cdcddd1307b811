//! Languages without state: the code goes to a file of its own, and its interpreter or compiler is an ordinary exec.

use std::{
    io::{self, Write},
    rc::Rc,
};

use guest_protocol::{CellStart, ExecStart, Failure, FailureKind, Response, StartFailure};
use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid},
    rand::GetRandomFlags,
};
use tokio::task::spawn_local;

use super::languages;
use crate::{
    Guest, background,
    exec::{self, User},
    files::{self, Cancel},
};

/// Where the directories of such cells are created.
const PLACE: &str = "/tmp";
/// How the name of such a directory begins; 16 digits follow.
pub(crate) const CELL_DIRECTORY: &str = "cell-";
const RANDOM_BYTES: usize = 8;

/// How a language is run.
#[derive(Debug)]
pub(crate) struct ByFile {
    pub(crate) language: &'static str,
    /// Programs to look for in the PATH, best first.
    pub(crate) programs: &'static [&'static str],
    file: &'static str,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    /// The program gets these arguments and the file.
    Arguments(&'static [&'static str]),
    /// A shell runs this with the program (`$0`), the file (`$1`) and a name for the build result (`$2`).
    Script(&'static str),
}

const fn by_file(
    language: &'static str,
    programs: &'static [&'static str],
    file: &'static str,
    run: Run,
) -> ByFile {
    ByFile { language, programs, file, run }
}

const C: Run = Run::Script(r#""$0" -o "$2" "$1" -lm && exec "$2""#);
const RUST: Run = Run::Script(r#""$0" --edition 2021 -o "$2" "$1" && exec "$2""#);

pub(crate) const BY_FILE: &[ByFile] = &[
    by_file("sh", &["sh"], "main.sh", Run::Arguments(&[])),
    by_file("ruby", &["ruby"], "main.rb", Run::Arguments(&[])),
    by_file("perl", &["perl"], "main.pl", Run::Arguments(&[])),
    by_file("php", &["php"], "main.php", Run::Arguments(&[])),
    by_file("r", &["Rscript"], "main.R", Run::Arguments(&[])),
    by_file("lua", &["lua", "luajit"], "main.lua", Run::Arguments(&[])),
    by_file("julia", &["julia"], "main.jl", Run::Arguments(&[])),
    by_file("go", &["go"], "main.go", Run::Arguments(&["run"])),
    by_file("rust", &["rustc"], "main.rs", RUST),
    by_file("c", &["cc", "gcc", "clang"], "main.c", C),
    by_file("cpp", &["c++", "g++", "clang++"], "main.cpp", C),
    by_file("java", &["java"], "Main.java", Run::Arguments(&[])),
];

pub(crate) fn find(language: &str) -> Option<&'static ByFile> {
    BY_FILE.iter().find(|by_file| by_file.language == language)
}

/// Writes the code to a directory of its own, starts its program, and removes the directory at the end.
pub(super) async fn start(
    guest: &Rc<Guest>,
    mut request: ExecStart,
    by_file: &'static ByFile,
    cell: CellStart,
) -> Result<Response, Failure> {
    let user = match exec::find_user(&request.user) {
        Ok(user) => user,
        Err(message) => {
            let answer = exec::not_started(StartFailure::BadUser, message);
            return Ok(guest.execs.refused(&request.id, answer));
        }
    };
    let path = exec::path_of(&request.env).to_owned();
    let (file, code) = (by_file.file, cell.code);
    let prepared = background::spawn(move || {
        let program = languages::along(&path, by_file.programs);
        program.map(|program| Ok((program, write(file, &code, &user)?))).transpose()
    })?;
    let (program, directory) = match prepared.done().await? {
        Ok(Some(prepared)) => prepared,
        Ok(None) => {
            let message = languages::missing(by_file.language, by_file.programs);
            return Ok(guest.execs.refused(&request.id, exec::not_started(StartFailure::NotFound, message)));
        }
        Err(error) => {
            let message = format!("could not write the code of a cell beneath {PLACE}: {error}");
            let reason = exec::reason_of(io::Error::raw_os_error(&error));
            return Ok(guest.execs.refused(&request.id, exec::not_started(reason, message)));
        }
    };
    // The same request may have come twice, and the other one was faster.
    let is_known = guest.execs.find(&request.id).is_ok();
    let id = request.id.clone();
    request.command = command(by_file, program, &directory);
    let answer = exec::start_command(guest, request).await;
    match guest.execs.find(&id) {
        Ok(exec) if !is_known => drop(spawn_local(async move {
            exec.end().await;
            remove(directory);
        })),
        _ => remove(directory),
    }
    answer
}

fn command(by_file: &ByFile, program: String, directory: &str) -> Vec<String> {
    let file = format!("{directory}/{}", by_file.file);
    match by_file.run {
        Run::Arguments(arguments) => {
            let arguments = arguments.iter().map(|&argument| argument.to_owned());
            [program].into_iter().chain(arguments).chain([file]).collect()
        }
        Run::Script(script) => {
            let script = ["sh", "-c", script].map(str::to_owned);
            script.into_iter().chain([program, file, format!("{directory}/main")]).collect()
        }
    }
}

/// Makes a directory that only `user` may enter, with the code in it.
fn write(file: &str, code: &str, user: &User) -> io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let directory = format!("{PLACE}/{CELL_DIRECTORY}{:016x}", u64::from_le_bytes(random));
    rustix::fs::mkdirat(CWD, &directory, Mode::RWXU)?;
    let written = || -> io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(CWD, &directory, flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place, file, flags, Mode::RUSR | Mode::WUSR)?;
        let (uid, gid) = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
        rustix::fs::fchown(&file, uid, gid)?;
        std::fs::File::from(file).write_all(code.as_bytes())?;
        // The directory's owner is changed last: until then nobody else can put anything there.
        Ok(rustix::fs::chownat(&place, "", uid, gid, AtFlags::EMPTY_PATH)?)
    };
    match written() {
        Ok(()) => Ok(directory),
        Err(error) => {
            // The first error is reported; whatever is left is nearly empty.
            files::remove(&directory, true, &Cancel::default()).ok();
            Err(error)
        }
    }
}

/// If no thread is free, the directory stays, like files of other commands.
fn remove(directory: String) {
    background::spawn(move || files::remove(&directory, true, &Cancel::default())).ok();
}

/// The answer for an unknown language.
pub(super) fn unknown(language: &str) -> Response {
    let message = format!("{} is not a known language", exec::shown(language));
    exec::not_started(StartFailure::NotFound, message)
}

/// The failure for a request that names a context for a language without state.
pub(super) fn keeps_nothing(language: &str) -> Failure {
    Failure::new(FailureKind::InvalidRequest, format!("{language} keeps no state, so it has no contexts"))
}
