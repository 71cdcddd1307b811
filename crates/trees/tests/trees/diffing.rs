//! A diff reports what a reader inside would see.

use std::{
    ffi::OsStr,
    fs,
    os::{
        fd::AsFd as _,
        unix::{
            ffi::OsStrExt as _,
            fs::{PermissionsExt as _, symlink},
        },
    },
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use tempfile::TempDir;
use trees::{Diff, DiffOptions, Overlay};

use crate::world::{is_root, make_deep, open, place, remove, set_attribute, whiteout};

const EVERYTHING: DiffOptions = DiffOptions {
    under: Vec::new(),
    with_patch: true,
    max_changes: 10_000,
    max_patch_bytes: 1 << 20,
    until: None,
    given_files: Vec::new(),
    given_directories: Vec::new(),
};

/// Layers `0`, `1` and so on, topmost first.
fn layers(count: usize) -> (TempDir, Vec<PathBuf>) {
    let place = place();
    let layers: Vec<_> = (0..count).map(|number| place.path().join(number.to_string())).collect();
    for layer in &layers {
        fs::create_dir(layer).unwrap();
    }
    (place, layers)
}

fn diff(layers: &[PathBuf], n_new: usize, options: &DiffOptions) -> Diff {
    let opened: Vec<_> = layers.iter().map(|layer| open(layer)).collect();
    let layers = opened.iter().map(|layer| layer.as_fd()).collect();
    trees::diff(&[Overlay { at: Vec::new(), layers, n_new, n_old: 0 }], options).unwrap()
}

/// Each change as a letter and its path; `m` is a change of metadata only.
fn told(diff: &Diff) -> Vec<String> {
    let letter = |change: &trees::Change| match change.kind {
        trees::ChangeKind::Added => 'A',
        trees::ChangeKind::Modified if change.only_metadata => 'm',
        trees::ChangeKind::Modified => 'M',
        trees::ChangeKind::Removed => 'D',
    };
    diff.changes
        .iter()
        .map(|change| format!("{} {}", letter(change), String::from_utf8_lossy(&change.path)))
        .collect()
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn added_modified_and_removed() {
    let (_place, at) = layers(2);
    let (upper, lower) = (&at[0], &at[1]);
    for (name, text) in
        [("etc/same", "1\n"), ("etc/changed", "1\n2\n3\n"), ("etc/gone", "bye\n"), ("etc/mode", "")]
    {
        write(lower.join(name), text);
    }
    write(lower.join("dir/in/file"), "deep\n");
    write(lower.join("untouched/file"), "x");
    symlink("a", lower.join("link")).unwrap();
    write(upper.join("etc/same"), "1\n");
    write(upper.join("etc/changed"), "1\n2 and more\n3\n");
    write(upper.join("etc/new"), "hello\n");
    write(upper.join("etc/mode"), "");
    fs::set_permissions(upper.join("etc/mode"), fs::Permissions::from_mode(0o600)).unwrap();
    write(upper.join("made/in/file"), "");
    whiteout(&upper.join("etc/gone"));
    whiteout(&upper.join("dir"));
    whiteout(&upper.join("never-was"));
    symlink("b", upper.join("link")).unwrap();
    let found = diff(&at, 1, &EVERYTHING);
    let expected = [
        "D /dir",
        "D /dir/in",
        "D /dir/in/file",
        "M /etc/changed",
        "D /etc/gone",
        "m /etc/mode",
        "A /etc/new",
        "M /link",
        "A /made",
        "A /made/in",
        "A /made/in/file",
    ];
    assert_eq!(told(&found), expected);
    let patch = "--- a/dir/in/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-deep\n\
        --- a/etc/changed\n+++ b/etc/changed\n@@ -1,3 +1,3 @@\n 1\n-2\n+2 and more\n 3\n\
        --- a/etc/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n\
        --- /dev/null\n+++ b/etc/new\n@@ -0,0 +1 @@\n+hello\n\
        diff --git a/made/in/file b/made/in/file\nnew file mode 100644\nindex 0000000..e69de29\n";
    assert_eq!(found.patch.as_deref(), Some(patch));
    assert!(!found.changes_cut && !found.patch_cut);
    assert_eq!(found.patch_left_out, 1, "the link");

    let sizes: Vec<_> = found.changes.iter().map(|change| change.size).collect();
    assert_eq!(sizes, [0, 0, 0, 15, 0, 0, 6, 1, 0, 0, 0]);
}

#[test]
fn kinds_that_changed_and_opaque_directories() {
    let (_place, at) = layers(2);
    let (upper, lower) = (&at[0], &at[1]);
    write(lower.join("was-directory/file"), "");
    write(lower.join("was-file"), "text");
    write(lower.join("emptied/old"), "");
    write(lower.join("emptied/kept"), "k");
    write(upper.join("was-directory"), "text");
    write(upper.join("was-file/file"), "");
    write(upper.join("emptied/kept"), "k");
    write(upper.join("emptied/new"), "");
    set_attribute(&upper.join("emptied"), "user.overlay.opaque", b"y");
    set_attribute(&upper.join("was-file"), "user.overlay.opaque", b"y");
    let expected = [
        "D /emptied/old",
        "A /emptied/new",
        "M /was-directory",
        "D /was-directory/file",
        "M /was-file",
        "A /was-file/file",
    ];
    let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
    let mut found = told(&diff(&at, 1, &EVERYTHING));
    let by_path = |line: &String| line[2..].to_owned();
    expected.sort_by_key(by_path);
    let in_order = found.clone();
    found.sort_by_key(by_path);
    assert_eq!(found, expected);
    assert_eq!(in_order, expected, "in the order of paths");
}

#[test]
fn several_layers_on_either_side() {
    let (_place, at) = layers(4);
    write(at[3].join("base"), "0");
    write(at[3].join("d/low"), "");
    write(at[2].join("d/middle"), "");
    write(at[2].join("e/hidden-then-back"), "1");
    write(at[1].join("d/one"), "");
    whiteout(&at[1].join("base"));
    whiteout(&at[1].join("e"));
    write(at[0].join("base"), "0");
    write(at[0].join("e/hidden-then-back"), "1");
    set_attribute(&at[0].join("e"), "user.overlay.opaque", b"y");
    whiteout(&at[0].join("zz"));
    fs::create_dir(at[0].join("d")).unwrap();
    whiteout(&at[0].join("d/low"));
    // Since the image: two layers are the change.
    assert_eq!(told(&diff(&at, 2, &EVERYTHING)), ["D /d/low", "A /d/one"]);
    // Since its base.
    assert_eq!(told(&diff(&at, 1, &EVERYTHING)), ["A /base", "D /d/low", "A /e", "A /e/hidden-then-back"]);
}

/// Two stacks that diverged from the same layers: what only one of them has, whichever changed it.
#[test]
fn two_stacks_on_the_same_layers() {
    let (_place, at) = layers(3);
    let (new, old, ground) = (&at[0], &at[1], &at[2]);
    for name in [
        "all/same",
        "old-removed/file",
        "new-removed",
        "both-removed",
        "old-changed",
        "emptied/a",
        "filled/a",
    ] {
        write(ground.join(name), "ground\n");
    }
    whiteout(&old.join("old-removed"));
    whiteout(&new.join("new-removed"));
    for layer in [new, old] {
        whiteout(&layer.join("both-removed"));
        write(layer.join("both-made/alike"), "alike\n");
    }
    write(old.join("old-changed"), "old\n");
    write(old.join("old-made/file"), "old\n");
    write(new.join("both-made/new"), "new\n");
    for (layer, name) in [(new, "emptied"), (old, "filled")] {
        fs::create_dir(layer.join(name)).unwrap();
        set_attribute(&layer.join(name), "user.overlay.opaque", b"y");
    }
    let opened: Vec<_> = at.iter().map(|layer| open(layer)).collect();
    let layers = opened.iter().map(|layer| layer.as_fd()).collect();
    let found = trees::diff(&[Overlay { at: Vec::new(), layers, n_new: 1, n_old: 1 }], &EVERYTHING).unwrap();
    let expected = [
        "A /both-made/new",
        "D /emptied/a",
        "A /filled/a",
        "D /new-removed",
        "M /old-changed",
        "D /old-made",
        "D /old-made/file",
        "A /old-removed",
        "A /old-removed/file",
    ];
    assert_eq!(told(&found), expected);
    assert!(found.patch.unwrap().contains("-old\n+ground\n"));
}

#[test]
fn only_what_is_asked_about_and_only_so_much() {
    let (_place, at) = layers(2);
    for number in 0..10 {
        write(at[0].join(format!("a/b/{number}")), "text\n");
        write(at[0].join(format!("c/{number}")), "text\n");
    }
    let under = |path: &str| path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    let found = diff(&at, 1, &DiffOptions { under: under("a/b"), ..EVERYTHING });
    assert_eq!((told(&found)[0].as_str(), found.changes.len()), ("A /a/b", 11));
    let found = diff(&at, 1, &DiffOptions { under: under("c/3"), ..EVERYTHING });
    assert_eq!(told(&found), ["A /c/3"]);
    let found = diff(&at, 1, &DiffOptions { under: under("c/3/x"), ..EVERYTHING });
    assert_eq!(told(&found), [""; 0]);
    let found = diff(&at, 1, &DiffOptions { max_changes: 5, ..EVERYTHING });
    assert_eq!((found.changes.len(), found.changes_cut), (5, true));
    let found = diff(&at, 1, &DiffOptions { until: Some(Instant::now()), ..EVERYTHING });
    assert_eq!((found.changes.len(), found.changes_cut), (0, true));
    let found = diff(&at, 1, &DiffOptions { max_patch_bytes: 200, ..EVERYTHING });
    assert!(found.patch_cut && found.patch.unwrap().len() <= 200);
    assert_eq!(found.changes.len(), 23);

    let opened: Vec<_> = at.iter().map(|layer| open(layer)).collect();
    let usr = Overlay {
        at: under("usr"),
        layers: opened.iter().map(|layer| layer.as_fd()).collect(),
        n_new: 1,
        n_old: 0,
    };
    let seen = |path: &str| {
        let under = if path.is_empty() { Vec::new() } else { under(path) };
        trees::diff(std::slice::from_ref(&usr), &DiffOptions { under, ..EVERYTHING }).unwrap().changes.len()
    };
    assert_eq!((seen(""), seen("usr"), seen("usr/a"), seen("etc")), (23, 23, 12, 0));
}

#[test]
fn what_is_no_text_is_only_listed() {
    let (_place, at) = layers(2);
    fs::write(at[0].join("binary"), b"a\0b").unwrap();
    fs::write(at[0].join("latin"), b"caf\xe9").unwrap();
    fs::write(at[0].join("long"), "x\n".repeat(1 << 20)).unwrap();
    fs::write(at[0].join("with space"), "no newline at its end").unwrap();
    let found = diff(&at, 1, &EVERYTHING);
    assert_eq!((found.changes.len(), found.patch_left_out), (4, 3));
    let expected = "--- /dev/null\n+++ b/with space\t\n@@ -0,0 +1 @@\n+no newline at its end\n\\ No newline at end of file\n";
    assert_eq!(found.patch.as_deref(), Some(expected));
}

/// Names that need quotes, added and removed empty files, carriage returns: `patch` and git read them back unchanged.
#[test]
fn odd_names_and_empty_files_are_read_again_as_they_are() {
    let (place, at) = layers(2);
    let odd: [&[u8]; 6] = [b"n\nl", b"t\tb", b"q\"q", b"b\\s", b"e\x1b[2J", b"l\xe9 x"];
    for name in odd.map(OsStr::from_bytes) {
        write(at[0].join(name), "text\r\n");
    }
    for name in ["empty", "with space", "q\"e"] {
        write(at[0].join(name), "");
    }
    fs::set_permissions(at[0].join("empty"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["changed", "gone", "was\tempty"] {
        write(at[1].join(name), if name == "changed" { "one\n" } else { "" });
    }
    write(at[0].join("changed"), "two\n");
    whiteout(&at[0].join("gone"));
    whiteout(&at[0].join("was\tempty"));
    let found = diff(&at, 1, &EVERYTHING);
    assert_eq!((found.patch_left_out, found.changes.len()), (0, 12));
    let patch = found.patch.unwrap();
    assert!(patch.contains("+++ \"b/n\\nl\"\n") && patch.contains("\"b/e\\033[2J\""), "{patch}");
    assert!(patch.contains("new file mode 100755\n") && !patch.contains('\x1b'), "{patch}");
    let file = place.path().join("all.patch");
    fs::write(&file, patch).unwrap();
    for (program, arguments) in [("patch", &["-s", "-p1", "-i"][..]), ("git", &["apply"])] {
        let copy = place.path().join(program);
        write(copy.join("changed"), "one\n");
        write(copy.join("gone"), "");
        write(copy.join("was\tempty"), "");
        let Ok(done) = Command::new(program).args(arguments).arg(&file).current_dir(&copy).output() else {
            continue;
        };
        assert!(done.status.success(), "{program}: {done:?}");
        for name in odd.map(OsStr::from_bytes) {
            assert_eq!(fs::read(copy.join(name)).unwrap(), b"text\r\n", "{program} {name:?}");
        }
        for name in ["empty", "with space", "q\"e"] {
            assert_eq!(fs::read(copy.join(name)).unwrap(), b"", "{program} {name}");
        }
        let is_gone = |name: &str| !copy.join(name).exists();
        assert!(is_gone("gone") && is_gone("was\tempty"), "{program}");
        assert_eq!(fs::read(copy.join("changed")).unwrap(), b"two\n");
    }
}

#[test]
fn files_that_were_put_there_are_no_change_until_they_are_changed() {
    let (_place, at) = layers(2);
    write(at[0].join("etc/hostname"), "box\n");
    write(at[0].join("etc/hosts"), "mine\n");
    fs::create_dir(at[1].join("etc")).unwrap();
    fs::create_dir(at[0].join("proc")).unwrap();
    fs::set_permissions(at[0].join("proc"), fs::Permissions::from_mode(0o755)).unwrap();
    write(at[0].join("run/mine"), "");
    let given_files =
        vec![(b"/etc/hostname".to_vec(), b"box\n".to_vec()), (b"/etc/hosts".to_vec(), b"theirs\n".to_vec())];
    let given_directories = vec![(b"/proc".to_vec(), 0o755), (b"/run".to_vec(), 0o700)];
    let options = DiffOptions { given_files, given_directories, ..EVERYTHING };
    assert_eq!(told(&diff(&at, 1, &options)), ["A /etc/hosts", "A /run", "A /run/mine"]);
}

#[test]
fn a_deep_tree_is_cut_and_not_choked_on() {
    let (_place, at) = layers(2);
    make_deep(&at[0], 6000);
    let found = diff(&at, 1, &DiffOptions { with_patch: false, max_changes: 100_000, ..EVERYTHING });
    assert!(found.changes_cut && found.changes.len() > 1000, "{}", found.changes.len());
    remove(&at[0]);
}

#[test]
fn links_in_layers_lead_nowhere() {
    let (place, at) = layers(2);
    write(place.path().join("outside/secret"), "secret\n");
    symlink("../outside", at[0].join("d")).unwrap();
    write(at[1].join("d/file"), "x\n");
    let found = diff(&at, 1, &EVERYTHING);
    assert_eq!(told(&found), ["M /d", "D /d/file"]);
    assert!(!found.patch.unwrap().contains("secret"));
}

/// Changes made through a real overlay are reported, and `patch` repeats them elsewhere.
#[test]
fn the_kernel_agrees() {
    if !is_root() {
        return;
    }
    let (place, at) = layers(3);
    let (upper, middle, lower) = (&at[0], &at[1], &at[2]);
    for name in ["etc/a", "etc/b", "srv/c", "srv/sub/d", "moved/x", "moved/y/z", "opt/only"] {
        write(lower.join(name), &format!("{name}\nsecond\n"));
    }
    write(middle.join("etc/m"), "middle\n");
    whiteout(&middle.join("etc/b"));
    let (work, merged) = (place.path().join("work"), place.path().join("merged"));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&merged).unwrap();
    let options = format!(
        "lowerdir={}:{},upperdir={},workdir={},userxattr",
        middle.display(),
        lower.display(),
        upper.display(),
        work.display()
    );
    let ran = |command: &mut Command| command.output().unwrap().status.success();
    assert!(ran(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(&merged)));
    let before = place.path().join("before");
    assert!(ran(Command::new("cp").arg("-a").arg(&merged).arg(&before)));
    let script = "rm etc/a && echo new > etc/new && rm -r srv && mkdir srv && echo again > srv/c \
        && mv moved elsewhere && touch opt/only && chmod 600 etc/m && echo back > etc/b && echo -n > opt/empty";
    let done = Command::new("sh").arg("-ec").arg(script).current_dir(&merged).output().unwrap();
    // A directory of a lower layer cannot be renamed; then it is copied, as `mv` does by itself.
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let after = place.path().join("after");
    assert!(ran(Command::new("cp").arg("-a").arg(&merged).arg(&after)));
    let found = diff(&at, 1, &EVERYTHING);
    assert!(ran(Command::new("umount").arg(&merged)));
    let expected = [
        "A /elsewhere",
        "A /elsewhere/x",
        "A /elsewhere/y",
        "A /elsewhere/y/z",
        "D /etc/a",
        "A /etc/b",
        "m /etc/m",
        "A /etc/new",
        "D /moved",
        "D /moved/x",
        "D /moved/y",
        "D /moved/y/z",
        "A /opt/empty",
        "M /srv/c",
        "D /srv/sub",
        "D /srv/sub/d",
    ];
    assert_eq!(told(&found), expected);
    apply(&before, found.patch.as_deref().unwrap(), &after);
}

fn apply(before: &Path, patch: &str, after: &Path) {
    let file = before.with_extension("patch");
    fs::write(&file, patch).unwrap();
    let Ok(done) = Command::new("patch").args(["-s", "-p1", "-i"]).arg(&file).current_dir(before).output()
    else {
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    for name in ["etc/new", "etc/b", "srv/c", "elsewhere/y/z"] {
        assert_eq!(fs::read(before.join(name)).unwrap(), fs::read(after.join(name)).unwrap(), "{name}");
    }
    assert!(!before.join("etc/a").exists() && !before.join("moved/x").exists());
}
