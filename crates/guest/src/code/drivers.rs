//! Interpreters that keep state between cells, and the drivers that we give them.

/// How cells are written to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `[length: u32 LE][type: u8][payload]`, after one frame with the driver's parts.
    Binary,
    /// `number NUL code NUL`, for a language that reads no binary.
    Nul,
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) language: &'static str,
    /// What to look for along the PATH, best first.
    pub(crate) programs: &'static [&'static str],
    /// The boot program among them.
    pub(crate) arguments: &'static [&'static str],
    pub(crate) parts: &'static [(&'static str, &'static str)],
    pub(crate) framing: Framing,
    pub(crate) can_fork: bool,
}

/// Another language that an interpreter runs, and the type of its frames.
struct Dialect {
    language: &'static str,
    interpreter: &'static str,
    frame: u8,
}

const CELL: u8 = b'C';

const DRIVERS: &[Driver] = &[Driver {
    language: "python",
    programs: &["python3", "python"],
    arguments: &["-c", include_str!("python/boot.py")],
    parts: &[
        ("core", include_str!("python/core.py")),
        ("branch", include_str!("python/branch.py")),
        ("errors", include_str!("python/errors.py")),
        ("figures", include_str!("python/figures.py")),
        ("fork", include_str!("python/fork.py")),
        ("hazards", include_str!("python/hazards.py")),
        ("loop", include_str!("python/loop.py")),
        ("show", include_str!("python/show.py")),
        ("watch", include_str!("python/watch.py")),
    ],
    framing: Framing::Binary,
    can_fork: true,
}];

const DIALECTS: &[Dialect] = &[Dialect { language: "typescript", interpreter: "javascript", frame: b'T' }];

/// The driver that runs a language, and the type of the frames for its cells.
pub(crate) fn find(language: &str) -> Option<(&'static Driver, u8)> {
    let dialect = DIALECTS.iter().find(|dialect| dialect.language == language);
    let (interpreter, frame) =
        dialect.map_or((language, CELL), |dialect| (dialect.interpreter, dialect.frame));
    let driver = DRIVERS.iter().find(|driver| driver.language == interpreter)?;
    Some((driver, frame))
}
