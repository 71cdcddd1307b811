use std::{fs, io::Read as _, os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::World;

fn cat(world: &World, path: &str) -> String {
    world.run(&["exec", "dev", "cat", path]).expect(0).text()
}

#[test]
fn a_file_goes_in_and_comes_out() {
    let world = World::with_dev();
    let files = world.files();
    let local = files.join("note.txt");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    fs::write(&local, &bytes).unwrap();
    fs::set_permissions(&local, fs::Permissions::from_mode(0o640)).unwrap();
    let local = local.to_str().unwrap();
    world.run(&["cp", local, "dev:/root/"]).expect(0);
    world.run(&["cp", local, "dev:/root/other.txt"]).expect(0);
    world.run(&["cp", local, "dev:/root/none/"]).expect(125);
    let back = files.join("back");
    world.run(&["cp", "dev:/root/note.txt", back.to_str().unwrap()]).expect(0);
    assert!(fs::read(&back).unwrap() == bytes);
    assert_eq!(fs::metadata(&back).unwrap().permissions().mode() & 0o777, 0o640);
    world.run(&["cp", "dev:/root/other.txt", files.to_str().unwrap()]).expect(0);
    assert!(fs::read(files.join("other.txt")).unwrap() == bytes);
    let copied = world.run(&["--json", "cp", "dev:/root/note.txt", back.to_str().unwrap()]).expect(0).json();
    assert_eq!(copied["bytes"], bytes.len());
    let left: Vec<_> = fs::read_dir(&files)
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    assert!(!left.iter().any(|name| name.contains("warren-cp")), "{left:?}");
}

#[test]
fn relative_paths_inside_start_at_the_working_directory() {
    let world = World::new();
    world.run(&["create", "--name", "dev", "-w", "/srv"]).expect(0);
    let files = world.files();
    let (local, back) = (files.join("note"), files.join("back"));
    fs::write(&local, "kept").unwrap();
    let (local, back) = (local.to_str().unwrap(), back.to_str().unwrap());
    world.run(&["cp", local, "dev:"]).expect(0);
    assert_eq!(cat(&world, "/srv/note"), "kept");
    world.run(&["cp", local, "dev:other"]).expect(0);
    assert_eq!(cat(&world, "/srv/other"), "kept");
    world.run(&["cp", "dev:note", back]).expect(0);
    assert_eq!(fs::read_to_string(back).unwrap(), "kept");
    let tree = files.join("tree");
    world.run(&["cp", "dev:", tree.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(tree.join("other")).unwrap(), "kept");
}

fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub/empty")).unwrap();
    fs::write(at.join("a"), "one").unwrap();
    fs::write(at.join("sub/b"), "two").unwrap();
    std::os::unix::fs::symlink("../a", at.join("sub/link")).unwrap();
}

#[test]
fn directories_behave_as_with_docker_cp() {
    let world = World::with_dev();
    let files = world.files();
    let source = files.join("src");
    tree(&source);
    let source = source.to_str().unwrap();
    // A directory that is not there is made; one that is there receives the source; `/.` means what is inside.
    world.run(&["cp", source, "dev:/fresh"]).expect(0);
    assert_eq!(cat(&world, "/fresh/sub/b"), "two");
    world.run(&["cp", source, "dev:/fresh"]).expect(0);
    assert_eq!(cat(&world, "/fresh/src/a"), "one");
    world.run(&["exec", "dev", "mkdir", "/there"]).expect(0);
    world.run(&["cp", &format!("{source}/."), "dev:/there/"]).expect(0);
    assert_eq!(cat(&world, "/there/a"), "one");
    world.run(&["cp", source, "dev:/there/a"]).expect(125);

    let (new, old) = (files.join("new"), files.join("old"));
    world.run(&["cp", "dev:/there", new.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(new.join("sub/b")).unwrap(), "two");
    assert_eq!(fs::read_link(new.join("sub/link")).unwrap(), Path::new("../a"));
    assert!(new.join("sub/empty").is_dir());
    fs::create_dir(&old).unwrap();
    fs::write(old.join("mine"), "kept").unwrap();
    world.run(&["cp", "dev:/there/", old.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(old.join("there/a")).unwrap(), "one");
    world.run(&["cp", "dev:/there/.", old.to_str().unwrap()]).expect(0);
    assert_eq!(fs::read_to_string(old.join("a")).unwrap(), "one");
    assert_eq!(fs::read_to_string(old.join("mine")).unwrap(), "kept");
    world.run(&["cp", "dev:/there", new.join("a").to_str().unwrap()]).expect(125);
}

#[test]
fn a_dash_is_a_tar_stream() {
    let world = World::with_dev();
    let source = world.files().join("src");
    tree(&source);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all("src", &source).unwrap();
    let stream = builder.into_inner().unwrap();
    world.run(&["exec", "dev", "mkdir", "/in"]).expect(0);
    world.run_with_input(&["cp", "-", "dev:/in"], &stream).expect(0);
    assert_eq!(cat(&world, "/in/src/sub/b"), "two");
    let out = world.run(&["cp", "dev:/in/src", "-"]).expect(0);
    let mut found = Vec::new();
    for entry in tar::Archive::new(&out.stdout[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.push((entry.path().unwrap().display().to_string(), text));
    }
    assert!(
        found.iter().any(|(path, text)| path.trim_end_matches('/') == "src/sub/b" && text == "two"),
        "{found:?}"
    );
}

#[test]
fn sides_that_make_no_sense_are_refused() {
    let world = World::with_dev();
    for args in [
        &["cp", "a", "b"][..],
        &["cp", "-", "-"],
        &["cp", "dev:/a", "dev:/b"],
        &["cp", "/no/such/file", "dev:/x"],
        &["cp", "dev:/no/such", "x"],
        &["cp", "nobody:/x", "x"],
    ] {
        let refused = world.run(args).expect(125);
        assert!(refused.stderr.starts_with("error: "), "{args:?} {refused:?}");
    }
    let nobody = world.run(&["cp", "/etc/hostname", "nobody:/x"]).expect(125);
    assert!(nobody.stderr.contains("nobody"), "{nobody:?}");
}
