//! Packages in builds, from an index that the test serves on loopback.

use std::{fs, path::Path, process::Command};

use crate::{
    builds::{Site, cached, printed},
    harness::{Daemon, text},
    packages::Index,
};

const NEEDED: [&str; 3] = ["/usr/bin/apt-get", "/usr/bin/python3", "/usr/lib/python3/dist-packages/pip"];

/// Gives the daemon an image `managers` with Python, pip and apt-get.
fn import_managers(site: &Site, address: &str) {
    let place = tempfile::tempdir().unwrap();
    let (script, root, archive) =
        (place.path().join("managers.sh"), place.path().join("root"), place.path().join("root.tar"));
    fs::write(&script, include_str!("managers.sh")).unwrap();
    for command in [
        Command::new("/bin/sh").arg(&script).arg(&root).arg(address),
        Command::new("tar")
            .arg("cf")
            .arg(&archive)
            .args(["--owner=0", "--group=0", "-C"])
            .arg(&root)
            .arg("."),
    ] {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let config = r#"{"env": ["PATH=/usr/bin:/bin"]}"#;
    site.daemon.ok(["image", "import", archive.to_str().unwrap(), "managers", "--config", config]);
}

#[test]
fn commands_of_a_build_get_packages_and_keep_no_trace_of_how() {
    if let Some(missing) = NEEDED.iter().find(|path| !Path::new(path).exists()) {
        return println!("no {missing} here");
    }
    let index = Index::start();
    let site = Site::with(Daemon::configured(&index.config()));
    import_managers(&site, &index.address);
    let steps = "FROM managers\n\
        ENV PYTHONDONTWRITEBYTECODE=1\n\
        RUN python3 -m pip install --no-compile --break-system-packages burrow\n\
        RUN apt-get update && cd /root && apt-get download badger && ls /root\n\
        RUN wget -qO- ${npm_config_registry}hollow | grep -o 3.4.5 | cat >/dev/null && id -u\n\
        RUN --network=none python3 -c 'import burrow; print(burrow.answer)'; ! wget -qO- http://127.0.0.1:17071/pip/simple/burrow/; echo cut off; env\n\
        RUN true\n";
    site.put("Dockerfile", steps);
    let events = site.built(&["-t", "app"]);
    let told = printed(&events);
    for part in ["Successfully installed burrow-1.2", "badger_2.0-1_all.deb", "42", "can't connect"] {
        assert!(told.contains(part), "no {part}: {told}");
    }
    let (_, cut_off) = told.split_once("\ncut off\n").unwrap();
    assert!(cut_off.contains("HOME=/root") && !cut_off.contains("PIP_"), "{cut_off}");

    // Nothing of it is in a layer or in what the image says.
    let detail = site.daemon.json(["image", "inspect", "app", "--json"]).to_string();
    assert!(detail.contains(r#""env":["PATH=/usr/bin:/bin","PYTHONDONTWRITEBYTECODE=1"]"#), "{detail}");
    let archive = site.context.path().join("app.tar");
    site.daemon.ok(["save", "-o", archive.to_str().unwrap(), "app"]);
    let script = "mkdir x && tar xf app.tar -C x && find x -type f | while read -r file; do \
                  tar tf \"$file\" && tar xOf \"$file\"; done 2>/dev/null | grep -a -c \
                  -e 127.0.0.1:1707 -e PIP_INDEX_URL= -e npm_config_ -e APT_CONFIG= -e warren";
    let output = Command::new("sh").args(["-c", script]).current_dir(site.context.path()).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), "0", "{}", text(&output.stderr));
    fs::remove_dir_all(site.context.path().join("x")).unwrap();
    fs::remove_file(&archive).unwrap();

    // With nothing to reach, and so with nothing that was made otherwise.
    site.put("Dockerfile", steps);
    let n_requests = index.n_requests();
    let error = site.fails(&["-t", "other", "--network", "none"]);
    assert!(error.contains("line 3"), "{error}");
    assert_eq!(cached(&site.built(&["-t", "app"])), [3, 4, 5, 6, 7]);
    assert_eq!(index.n_requests(), n_requests);
    let (_, refused) = site.daemon.fails(["build", "--network", "host", "."]);
    assert!(refused.contains("none"), "{refused}");
    site.assert_nothing_left();
}
