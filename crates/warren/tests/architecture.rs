//! The dependencies that crates may have, held against what cargo sees; and the places where `unsafe` may stand.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// A new line here is an architecture decision. `warren` wires everything and is not listed.
const ALLOWED: &[(&str, &[&str])] = &[
    ("sandbox", &[]),
    ("guest-protocol", &[]),
    ("archive", &[]),
    ("guest", &["guest-protocol", "archive"]),
    ("jail", &[]),
    ("downloads", &[]),
    ("images", &["downloads", "archive"]),
    ("trees", &["archive"]),
    ("hostfiles", &["archive"]),
    ("build", &[]),
    ("attack", &[]),
    ("store", &["sandbox"]),
    ("backends", &["sandbox", "edge", "jail", "guest-protocol", "images", "trees"]),
    ("gateway", &["downloads"]),
    ("edge", &["sandbox"]),
    ("engine", &["sandbox", "store", "guest-protocol", "gateway", "images", "build", "archive"]),
    ("frontends", &["engine", "sandbox", "hostfiles"]),
    ("dashboard", &[]),
    ("ssh", &["engine", "sandbox"]),
    ("test-registry", &[]),
    ("test-backend", &["sandbox", "backends", "guest", "guest-protocol", "jail"]),
    ("bench", &["images", "jail"]),
];

/// The front ends, and which others each may know: what they share lies beside them, and knows none of them. A dialect
/// is spoken over MCP or HTTP.
const FRONT_ENDS: &[(&str, &[&str])] = &[("mcp", &[]), ("rest", &[]), ("web", &[]), ("dialects", &["mcp"])];

/// For tests and measurements: no crate is built from them, `warren` neither.
const FOR_TESTS: &[&str] = &["test-registry", "test-backend", "bench"];

/// Crates that talk to the kernel by hand, or run before `main`; in them `unsafe` stands in files named `sys.rs` only.
const MAY_HOLD_UNSAFE: &[&str] = &["attack", "guest", "jail", "test-backend"];

#[test]
fn crates_depend_only_downwards() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let ours: BTreeSet<_> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();

    for package in metadata.packages.iter().filter(|package| package.name.as_str() != "warren") {
        let used: BTreeSet<_> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal && ours.contains(&dependency.name))
            .map(|dependency| dependency.name.as_str())
            .collect();
        let permitted = allowed
            .get(package.name.as_str())
            .unwrap_or_else(|| panic!("crate {} is not in the table; decide what it may know", package.name));
        for name in used {
            assert!(permitted.contains(&name), "{} must not depend on {name}", package.name);
        }
    }
}

#[test]
fn what_is_for_tests_is_in_nothing_else() {
    for package in MetadataCommand::new().no_deps().exec().unwrap().packages {
        for dependency in &package.dependencies {
            let is_for_tests = FOR_TESTS.contains(&dependency.name.as_str());
            assert!(
                !is_for_tests || dependency.kind == DependencyKind::Development,
                "{} is built from {}",
                package.name,
                dependency.name
            );
        }
    }
}

#[test]
fn unsafe_has_an_address() {
    for crate_dir in fs::read_dir(workspace().join("crates")).unwrap() {
        let crate_dir = crate_dir.unwrap().path();
        let name = crate_dir.file_name().unwrap().to_string_lossy().into_owned();
        let sources = rust_files(&crate_dir.join("src"));
        if MAY_HOLD_UNSAFE.contains(&name.as_str()) {
            for file in sources.iter().filter(|file| !file.ends_with("sys.rs")) {
                let text = fs::read_to_string(file).unwrap();
                assert!(!text.contains("unsafe {"), "{}: unsafe belongs in a sys.rs", file.display());
            }
        } else {
            let root = ["lib.rs", "main.rs"]
                .iter()
                .map(|f| crate_dir.join("src").join(f))
                .find(|f| f.exists())
                .unwrap();
            let text = fs::read_to_string(&root).unwrap();
            assert!(text.contains("#![forbid(unsafe_code)]"), "{} must forbid unsafe code", root.display());
        }
    }
}

#[test]
fn front_ends_do_not_know_each_other() {
    let sources = workspace().join("crates/frontends/src");
    for file in rust_files(&sources) {
        let path = file.strip_prefix(&sources).unwrap();
        let own = path.iter().next().unwrap().to_string_lossy();
        let may_know = FRONT_ENDS.iter().find(|(name, _)| *name == own).map_or(&[][..], |(_, others)| others);
        let text = fs::read_to_string(&file).unwrap();
        for (other, _) in FRONT_ENDS.iter().filter(|(name, _)| *name != own && !may_know.contains(name)) {
            assert!(!imported(&text).contains(*other), "{} must not know {other}", path.display());
        }
    }
}

/// The modules at the root of a crate that a source names: `crate::a`, `crate::{a, b::{c, d}}`, `super::a`.
fn imported(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for after in source.split("crate::").skip(1).chain(source.split("super::").skip(1)) {
        let Some(group) = after.strip_prefix('{') else {
            names.insert(first_word(after));
            continue;
        };
        let (mut depth, mut is_first) = (0_usize, true);
        for (at, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => is_first = true,
                letter if is_first && letter.is_ascii_alphabetic() => {
                    names.insert(first_word(&group[at..]));
                    is_first = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

#[test]
fn imports_are_found_however_they_are_written() {
    let source =
        "use crate::{\n    mcp::{a, b},\n    links,\n};\nuse super::rest::x; fn f() { crate::web::y() }";
    let found: Vec<_> = imported(source).into_iter().collect();
    assert_eq!(found, ["links", "mcp", "rest", "web"]);
}

/// Advice in errors is read at a terminal, by models and by programs: below the front ends it names no command, no tool
/// and no route. Those are values, which each front end words.
#[test]
fn advice_names_nothing_of_one_front_end() {
    const OF_ONE: [&str; 8] =
        ["`warren", "GET ", "POST ", "PUT ", "sandbox_", "volume_", "snapshot_", "image_"];
    for name in ["sandbox", "store", "images", "backends", "engine"] {
        for file in rust_files(&workspace().join("crates").join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            for begin in ["with_hint(", "Next::Advice("] {
                for after in text.split(begin).skip(1) {
                    let argument = after.split(';').next().unwrap_or_default();
                    let told = argument.split('"').nth(1).unwrap_or_default();
                    let found = OF_ONE.iter().find(|word| told.contains(**word));
                    assert_eq!(found, None, "{}: {told:?}", file.display());
                }
            }
        }
    }
}

/// The same for settings of the daemon and flags of its command: they are `Next::Configure` there.
#[test]
fn settings_are_named_by_front_ends_only() {
    const SETTINGS: [&str; 3] = ["images.registries", "packages.enabled", "--publish-on"];
    for name in ["sandbox", "store", "images", "backends", "engine"] {
        for file in rust_files(&workspace().join("crates").join(name).join("src")) {
            let text = without_tests(&file);
            let said = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in said {
                let found = SETTINGS.iter().find(|setting| line.contains(**setting));
                assert_eq!(found, None, "{}: {line}", file.display());
            }
        }
    }
}

/// An error is a value. What decides something looks at the kind, the subject, the state, the limit or the next step.
#[test]
fn nothing_looks_into_a_message() {
    const WORDS: [&str; 6] = ["error.to_string()", "message", "hint", "words", "advice", "why"];
    const LOOKS: [&str; 6] =
        ["contains(\"", "starts_with(\"", "ends_with(\"", "strip_prefix(\"", "split_once(\"", "find(\""];
    let sources = rust_files(&workspace().join("crates"));
    let tests = test_modules(&sources);
    for file in sources.iter().filter(|file| is_product(file) && !tests.contains(&stem(file))) {
        let text = without_tests(file);
        for (word, look) in WORDS.iter().flat_map(|word| LOOKS.iter().map(move |look| (word, look))) {
            let looks = format!("{word}.{look}");
            assert!(!text.contains(&looks), "{}: {looks}…", file.display());
        }
    }
}

fn is_product(file: &Path) -> bool {
    // The workspace itself may lie below a directory of that name.
    let inside = file.strip_prefix(workspace()).unwrap();
    let mut parts = inside.components().map(|part| part.as_os_str());
    parts.any(|part| part == "src")
        && !FOR_TESTS.iter().any(|name| file.starts_with(workspace().join("crates").join(name)))
}

fn without_tests(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

/// The names of modules that are compiled for tests only and have files of their own.
fn test_modules(sources: &[PathBuf]) -> BTreeSet<String> {
    let texts = sources.iter().map(|file| fs::read_to_string(file).unwrap());
    let of_one = |text: String| -> Vec<String> {
        let after = text.split("#[cfg(test)]\n").skip(1);
        let names = after.filter_map(|rest| rest.lines().next()?.split_once("mod ")?.1.strip_suffix(';'));
        names.map(str::to_owned).collect()
    };
    texts.flat_map(of_one).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
