//! Interpreters that keep state between cells, and our drivers for them.

/// How cells are sent to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `[length: u32 LE][type: u8][payload]`, after one frame with the driver's parts.
    Binary,
    /// `number NUL code NUL`, for a shell that reads no binary. Its stderr comes as descriptor 0, and 2 leads nowhere:
    /// the shell's own messages are for nobody.
    Shell,
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) language: &'static str,
    /// Programs to look for in the PATH, best first.
    pub(crate) programs: &'static [&'static str],
    /// The arguments that start the boot program, or all of it.
    pub(crate) arguments: &'static [&'static str],
    /// An environment variable that holds the boot program.
    pub(crate) variable: Option<(&'static str, &'static str)>,
    /// A variable that the interpreter is started with, unless its context says otherwise. It removes it again, so that
    /// what it starts does not get it.
    pub(crate) tuning: Option<(&'static str, &'static str)>,
    pub(crate) parts: &'static [(&'static str, &'static str)],
    pub(crate) framing: Framing,
    pub(crate) can_fork: bool,
}

impl Driver {
    /// A program that a shell is just starting loses an interrupt, and cannot be told from one that takes its time; so
    /// the interrupt is repeated until the cell has ended.
    pub(crate) fn needs_many_interrupts(&self) -> bool {
        self.framing == Framing::Shell
    }

    /// A cell may replace the shell by another program (`exec`), which closes the channel without being a fault.
    pub(crate) fn can_be_replaced(&self) -> bool {
        self.framing == Framing::Shell
    }
}

/// Another language that an interpreter runs, and the type of its frames.
struct Dialect {
    language: &'static str,
    interpreter: &'static str,
    frame: u8,
}

const CELL: u8 = b'C';

/// Holds the boot program of an interpreter, so that lists of processes do not show it. The interpreter removes it
/// before the first cell.
const BOOT: &str = "WARREN_BOOT";

const DRIVERS: &[Driver] = &[
    Driver {
        language: "python",
        programs: &["python3", "python"],
        arguments: &["-c", "exec(__import__('os').environ.pop('WARREN_BOOT'))"],
        variable: Some((BOOT, include_str!("python/boot.py"))),
        // Large blocks of memory in huge pages, where the kernel gives them: a fork copies one entry for 2 MiB instead
        // of 512, twice, and takes the first copy down again. 100 MiB then take 1 ms instead of 7.
        tuning: Some(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")),
        parts: &[
            ("core", include_str!("python/core.py")),
            ("branch", include_str!("python/branch.py")),
            ("errors", include_str!("python/errors.py")),
            ("figures", include_str!("python/figures.py")),
            ("fork", include_str!("python/fork.py")),
            ("hazards", include_str!("python/hazards.py")),
            ("loop", include_str!("python/loop.py")),
            ("mend", include_str!("python/mend.py")),
            ("show", include_str!("python/show.py")),
            ("watch", include_str!("python/watch.py")),
        ],
        framing: Framing::Binary,
        can_fork: true,
    },
    Driver {
        language: "bash",
        programs: &["bash"],
        arguments: &["--norc", "--noprofile", "--noediting", "-i", "+H", "+o", "history"],
        variable: Some(("PROMPT_COMMAND", include_str!("bash/boot.sh"))),
        tuning: None,
        parts: &[],
        framing: Framing::Shell,
        can_fork: false,
    },
    Driver {
        language: "javascript",
        programs: &["node", "nodejs"],
        arguments: &[
            "-e",
            "eval((e => { const boot = e.WARREN_BOOT; delete e.WARREN_BOOT; return boot; })(process.env))",
        ],
        variable: Some((BOOT, include_str!("node/boot.js"))),
        tuning: None,
        parts: &[
            ("core", include_str!("node/core.js")),
            ("errors", include_str!("node/errors.js")),
            ("modules", include_str!("node/modules.js")),
            ("show", include_str!("node/show.js")),
            ("signals", include_str!("node/signals.js")),
            ("transform", include_str!("node/transform.js")),
            ("typescript", include_str!("node/typescript.js")),
        ],
        framing: Framing::Binary,
        can_fork: false,
    },
];

pub(crate) const TYPESCRIPT: &str = "typescript";

const DIALECTS: &[Dialect] = &[Dialect { language: TYPESCRIPT, interpreter: "javascript", frame: b'T' }];

/// The driver that runs a language, and the type of the frames for its cells.
pub(crate) fn find(language: &str) -> Option<(&'static Driver, u8)> {
    let dialect = DIALECTS.iter().find(|dialect| dialect.language == language);
    let (interpreter, frame) =
        dialect.map_or((language, CELL), |dialect| (dialect.interpreter, dialect.frame));
    let driver = DRIVERS.iter().find(|driver| driver.language == interpreter)?;
    Some((driver, frame))
}

/// Every language that keeps state, with the programs that run it.
pub(crate) fn languages() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let own = DRIVERS.iter().map(|driver| (driver.language, driver.programs));
    let dialects =
        DIALECTS.iter().filter_map(|dialect| Some((dialect.language, find(dialect.language)?.0.programs)));
    own.chain(dialects)
}
