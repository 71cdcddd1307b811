//! Sandboxfiles: `warren up`, `down` and `apply`, on real sandboxes.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Finished, PATIENCE, World, finish, until};

impl World {
    /// A project directory with this Sandboxfile.
    pub(crate) fn project(&self, name: &str, text: &str) -> PathBuf {
        let directory = self.files().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("Sandboxfile"), text).unwrap();
        directory
    }

    /// Runs a command in a directory.
    pub(crate) fn run_in(&self, directory: &PathBuf, args: &[&str]) -> Finished {
        finish(self.command(args).current_dir(directory).spawn().unwrap())
    }

    /// Every sandbox with its state.
    fn states(&self) -> Vec<(String, String)> {
        let listed = self.run(&["ps", "-a", "--json"]).expect(0).json();
        let text = |view: &Value, key: &str| view[key].as_str().unwrap().to_owned();
        let mut states: Vec<_> = listed["sandboxes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|view| (text(view, "name"), text(view, "state")))
            .collect();
        states.sort();
        states
    }

    fn id(&self, sandbox: &str) -> String {
        self.run(&["inspect", sandbox, "--json"]).expect(0).json()["id"].as_str().unwrap().to_owned()
    }
}

const SHOP: &str = "
meta:
  description: a shop
sandboxes:
  web:
    image: host
    depends_on: [api]
  api:
    image: microsandbox/python
    memory: 256
    cpus: 1
    workdir: /srv
    shell: /bin/bash
    volumes: [\"./src:/src:ro\", \"./data:/data\"]
    envs: [\"MODE=test\", \"FROM=entry\"]
    env_file: settings.env
    depends_on: [db]
    scripts:
      start: echo started with $MODE > /data/started
      greet: |
        #!/bin/sh
        echo \"hello $1 from $FROM and $ONLY\"
  db:
    image: host
    command: [sleep, infinity]
    scope: none
";

fn shop(world: &World) -> PathBuf {
    let directory = world.project("shop", SHOP);
    fs::create_dir_all(directory.join("src")).unwrap();
    fs::create_dir_all(directory.join("data")).unwrap();
    fs::write(directory.join("src/main.py"), "print(6 * 7)\n").unwrap();
    fs::write(directory.join("settings.env"), "# of the project\nFROM=file\nONLY='the file'\n").unwrap();
    directory
}

fn owned(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn a_project_goes_up_and_down_in_order() {
    let world = World::new();
    let directory = shop(&world);
    let up = world.run_in(&directory, &["up"]).expect(0);
    assert_eq!(up.text(), "created shop-db\ncreated shop-api\ncreated shop-web\n", "{up:?}");
    let said = world.run(&["exec", "shop-api", "greet", "you"]).expect(0).text();
    assert_eq!(said, "hello you from entry and the file\n");
    assert_eq!(world.run(&["exec", "shop-api", "python3", "/src/main.py"]).expect(0).text(), "42\n");
    assert_eq!(world.run(&["exec", "shop-api", "pwd"]).expect(0).text(), "/srv\n");
    assert_ne!(world.run(&["exec", "shop-api", "touch", "/src/x"]).code, Some(0), "read-only");
    until("the start script has run", || directory.join("data/started").exists());

    let again = world.run_in(&directory, &["up"]).expect(0);
    assert_eq!(again.text(), "unchanged shop-db\nunchanged shop-api\nunchanged shop-web\n");
    let down = world.run_in(&directory, &["down", "api"]).expect(0);
    assert_eq!(down.text(), "stopped shop-api\n");
    let down = world.run_in(&directory, &["down"]).expect(0);
    assert_eq!(down.text(), "stopped shop-web\nunchanged shop-api\nstopped shop-db\n");
    let one = world.run_in(&directory, &["up", "api", "--json"]).expect(0).json();
    let steps: Vec<_> = one["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["sandbox"].as_str().unwrap(), step["action"].as_str().unwrap(), step["ok"] == true))
        .collect();
    assert_eq!(steps, [("shop-db", "start", true), ("shop-api", "start", true)]);

    let refused = world.run_in(&directory, &["down", "--rm"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("--yes"), "{refused:?}");
    assert_eq!(world.states().len(), 3);
    world.run_in(&directory, &["down", "--rm", "--yes"]).expect(0);
    assert_eq!(world.states(), []);
}

#[test]
fn apply_makes_the_sandboxes_as_the_file_says() {
    let world = World::new();
    let one = "sandboxes: {keep: {image: host}, change: {image: host}, leave: {image: host}}";
    let directory = world.project("lab", one);
    world.run_in(&directory, &["apply"]).expect(0);
    let [kept, changed] = ["lab-keep", "lab-change"].map(|name| world.id(name));
    world.run(&["stop", "lab-keep"]).expect(0);

    let two = "sandboxes: {keep: {image: host}, change: {image: host, memory: 128}, new: {image: host}}";
    world.project("lab", two);
    let plan = "would remove lab-leave (it is not in the file)\nwould replace lab-change (the file changed)\n\
                would start lab-keep\nwould create lab-new\n";
    assert_eq!(world.run_in(&directory, &["apply", "--dry-run"]).expect(0).text(), plan);
    let refused = world.run_in(&directory, &["apply"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("--yes"), "{refused:?}");
    assert!(refused.stderr.contains("lab-leave") && refused.stderr.contains("lab-change"), "{refused:?}");
    assert_eq!(
        world.states(),
        owned(&[("lab-change", "running"), ("lab-keep", "stopped"), ("lab-leave", "running")]),
        "nothing was done"
    );
    // `up` leaves what changed, and says so.
    let up = world.run_in(&directory, &["up", "change"]).expect(0);
    assert!(up.text() == "unchanged lab-change\n" && up.stderr.contains("warren apply"), "{up:?}");

    world.run_in(&directory, &["apply", "--yes"]).expect(0);
    assert_eq!(
        world.states(),
        owned(&[("lab-change", "running"), ("lab-keep", "running"), ("lab-new", "running")])
    );
    assert_eq!(world.id("lab-keep"), kept);
    assert_ne!(world.id("lab-change"), changed);
    let again = world.run_in(&directory, &["apply"]).expect(0).text();
    assert_eq!(again, "unchanged lab-change\nunchanged lab-keep\nunchanged lab-new\n");
}

#[test]
fn projects_do_not_meet() {
    let world = World::new();
    let text = "sandboxes: {app: {image: host}}";
    let (one, other) = (world.project("a/shop", text), world.project("b/shop", text));
    world.run_in(&one, &["up"]).expect(0);
    let refused = world.run_in(&other, &["up"]).expect(125);
    assert!(
        refused.stderr.contains("in another directory") && refused.stderr.contains("--project"),
        "{refused:?}"
    );
    let refused = world.run_in(&other, &["down"]);
    assert!(refused.code != Some(0), "{refused:?}");
    world.run_in(&other, &["up", "--project", "shop2"]).expect(0);
    world.run_in(&other, &["up", "--namespace", "apart"]).expect(0);
    world.run(&["create", "--name", "mine-app"]).expect(0);
    let refused = world.run_in(&other, &["apply", "--project", "mine", "--yes"]).expect(125);
    assert!(refused.stderr.contains("mine-app exists and is not of project mine"), "{refused:?}");
    assert_eq!(
        world.states(),
        owned(&[
            ("mine-app", "running"),
            ("shop-app", "running"),
            ("shop-app", "running"),
            ("shop2-app", "running")
        ])
    );
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_nothing_is_made() {
    let world = World::new();
    let bomb = {
        let mut text = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (name, before) in
            ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"])
        {
            text += &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 10].join(","));
        }
        format!(
            "modules:\n{}sandboxes: {{}}\n",
            text.lines().map(|line| format!("  {line}\n")).collect::<String>()
        )
    };
    let deep = format!("modules: {{a: {}{}}}\nsandboxes: {{}}\n", "[".repeat(200), "]".repeat(200));
    let huge = format!("sandboxes: {{}}\n#{}\n", "x".repeat(1024 * 1024));
    let many: String = (0..300).map(|n| format!("  s{n}: {{image: host}}\n")).collect();
    let image = "sandboxes:\n  app:\n    image: host\n";
    for (text, named) in [
        ("sandboxes: [", "line"),
        ("sandbox: {}\n", "sandbox"),
        ("- a\n", "line 1"),
        (&format!("{image}    imagee: x\n"), "imagee"),
        (&format!("{image}    image: other\n"), "line 4"),
        ("sandboxes:\n  app: {}\n", "image"),
        ("sandboxes:\n  ../../app: {image: host}\n", "../../app"),
        ("sandboxes:\n  sbx-1: {image: host}\n", "sbx-1"),
        ("sandboxes:\n  app: {image: \"a b\"}\n", "image"),
        ("sandboxes:\n  app: {image: /etc}\n", "--allow-host-path"),
        (&format!("{image}    memory: lots\n"), "line 4"),
        (&format!("{image}    memory: -1\n"), "line 4"),
        (&format!("{image}    memory: 0\n"), "memory"),
        (&format!("{image}    cpus: 0\n"), "cpus"),
        (&format!("{image}    volumes:\n      - /etc:/x\n"), "line 5"),
        (&format!("{image}    volumes: [\"way-out:/x\"]\n"), "way-out"),
        (&format!("{image}    volumes: [\"./way-out:/x\"]\n"), "--allow-host-path"),
        (&format!("{image}    volumes: [\"./nothing:/x\"]\n"), "nothing"),
        (&format!("{image}    volumes: [\".:/proc\"]\n"), "/proc"),
        (&format!("{image}    volumes: [\".:x\"]\n"), "volumes"),
        (&format!("{image}    env_file: ../outside.env\n"), "--allow-host-path"),
        (&format!("{image}    env_file: /etc/shadow\n"), "--allow-host-path"),
        (&format!("{image}    envs: [SECRET]\n"), "envs"),
        (&format!("{image}    envs: 5\n"), "line 4: envs: expected a list"),
        (&format!("{image}    depends_on: [nobody]\n"), "nobody"),
        (&format!("{image}    depends_on: [app]\n"), "app → app"),
        (&format!("{image}    scripts: {{../x: echo}}\n"), "../x"),
        (&format!("{image}    ports: [\"8080:www\"]\n"), "8080:www"),
        (&format!("{image}    ports: [\"1:80\", \"2:80\"]\n"), "port 80 is exposed twice"),
        (&format!("{image}    imports: {{a: /b}}\n"), "imports"),
        (&format!("{image}    scope: everywhere\n"), "everywhere"),
        (&format!("{image}    command: []\n"), "command"),
        (&format!("{image}    workdir: here\n"), "here"),
        (&format!("sandboxes:\n{many}"), "256"),
        (&bomb, "Sandboxfile"),
        (&deep, "Sandboxfile"),
        (&huge, "bytes"),
        ("sandboxes: {}\n---\nsandboxes: {}\n", "Sandboxfile"),
    ] {
        let directory = world.project("bad", text);
        fs::write(world.files().join("outside.env"), "A=1\n").unwrap();
        symlink(world.files(), directory.join("way-out")).ok();
        let refused = world.run_in(&directory, &["up"]);
        let shown: String = text.chars().take(200).collect();
        assert!(refused.code.is_some_and(|code| code != 0), "{shown}\n{refused:?}");
        assert!(
            refused.stderr.contains("error: ") && refused.stderr.contains("hint: "),
            "{shown}\n{refused:?}"
        );
        assert!(refused.stderr.contains(named), "{named:?} in:\n{shown}\n{refused:?}");
        assert!(refused.stderr.len() < 4000 && !refused.stderr.contains("panicked"), "{refused:?}");
    }
    assert_eq!(world.states(), []);
    let empty = world.files().join("empty");
    fs::create_dir_all(&empty).unwrap();
    let refused = world.run_in(&empty, &["up"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("-f"), "{refused:?}");
    let directory = world.project("good", image);
    let refused = world.run_in(&directory, &["up", "other"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("Its sandboxes are app"), "{refused:?}");
    let warned = world.project("good", &format!("{image}    scope: group\n"));
    let up = world.run_in(&warned, &["up"]).expect(0);
    assert!(up.stderr.contains("package indexes only"), "{up:?}");
    let allowed = world.files().canonicalize().unwrap();
    let wider = world.project("wide", &format!("{image}    volumes: [\"..:/all:ro\"]\n"));
    world.run_in(&wider, &["up", "--allow-host-path", allowed.to_str().unwrap()]).expect(0);
    assert_eq!(world.run(&["exec", "wide-app", "cat", "/all/outside.env"]).expect(0).text(), "A=1\n");
}

/// A path is checked when the file is read. A program inside that may write beside it could put a link there later.
#[test]
fn a_link_that_is_put_in_a_paths_place_is_not_followed() {
    let world = World::new();
    let text = "sandboxes: {app: {image: host, volumes: [\".:/all\", \"./data:/data\"]}}";
    let directory = world.project("shop", text);
    fs::create_dir(directory.join("data")).unwrap();
    world.run_in(&directory, &["up"]).expect(0);
    world.run(&["exec", "shop-app", "sh", "-c", "mv /all/data /all/old; ln -s /etc /all/data"]).expect(0);
    world.run(&["stop", "shop-app"]).expect(0);
    for refused in [world.run(&["start", "shop-app"]), world.run_in(&directory, &["up"])] {
        assert!(refused.code.is_some_and(|code| code != 0), "{refused:?}");
        assert!(refused.stderr.contains("/data") || refused.stderr.contains("/etc"), "{refused:?}");
    }
    fs::remove_file(directory.join("data")).unwrap();
    fs::create_dir(directory.join("data")).unwrap();
    world.run_in(&directory, &["up"]).expect(0);
}

#[test]
fn ports_of_the_file_are_published() {
    let world = World::new();
    let serve = "python3 -m http.server --bind 127.0.0.1 --directory /srv 8000";
    let text = format!("sandboxes: {{web: {{image: host, ports: [\"0:8000\"], exec: {serve}}}}}");
    let directory = world.project("site", &text);
    world.run_in(&directory, &["up"]).expect(0);
    let published = || {
        let listed = world.run(&["port", "site-web", "--json"]).expect(0).json();
        let port = listed["ports"].as_array().unwrap().iter().find(|port| port["port"] == 8000).cloned();
        port.unwrap_or_else(|| panic!("{listed}"))["published"].as_str().map(str::to_owned)
    };
    let answers = |address: &str| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("Directory listing").then_some(())
    };
    let address = published().unwrap();
    until("the server inside answers", || answers(&address).is_some());
    world.run_in(&directory, &["down"]).expect(0);
    let up = world.run_in(&directory, &["up"]).expect(0);
    assert_eq!(up.text(), "started site-web\n");
    until("it answers again", || published().is_some_and(|address| answers(&address).is_some()));
}

#[test]
fn an_apply_that_was_killed_is_finished_by_the_next() {
    let world = World::new();
    let members: String = (0..6).map(|n| format!("  s{n}: {{image: host, memory: 64}}\n")).collect();
    let directory = world.project("many", &format!("sandboxes:\n{members}"));
    // Killed after each number of sandboxes that it has told of.
    for n_told in 1..=3 {
        let mut child = world
            .command(&["apply", "--yes"])
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = std::io::BufReader::new(child.stdout.take().unwrap());
        for _ in 0..n_told {
            std::io::BufRead::read_line(&mut told, &mut String::new()).unwrap();
        }
        kill_process(Pid::from_child(&child), Signal::KILL).ok();
        child.wait().unwrap();
    }
    world.run_in(&directory, &["apply", "--yes"]).expect(0);
    let expected: Vec<_> = (0..6).map(|n| (format!("many-s{n}"), "running".to_owned())).collect();
    assert_eq!(world.states(), expected);

    // The same where every sandbox is replaced, and while the daemon dies as well.
    let members = members.replace("64", "65");
    world.project("many", &format!("sandboxes:\n{members}"));
    let mut child =
        world.command(&["apply", "--yes"]).current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut String::new()).unwrap();
    kill_process(Pid::from_child(&child), Signal::KILL).ok();
    let daemon = world.daemon().unwrap();
    daemon.signal(Signal::KILL);
    child.wait().unwrap();
    assert!(daemon.ends_within(PATIENCE));
    world.run_in(&directory, &["apply", "--yes"]).expect(0);
    assert_eq!(world.states(), expected);
    let again = world.run_in(&directory, &["apply"]).expect(0).text();
    assert_eq!(again.lines().filter(|line| line.starts_with("unchanged ")).count(), 6, "{again}");
}

#[test]
fn a_file_uses_the_secrets_that_the_user_lets_it_use() {
    let world = World::new();
    let set =
        ["secret", "set", "TOKEN", "--host", "api.example.org", "--from-command", "echo the-value-0123"];
    world.run(&set).expect(0);
    let text = "sandboxes:\n  api:\n    image: host\n    scope: public\n    secrets: [TOKEN=API_TOKEN]\n";
    let directory = world.project("vault", text);
    let refused = world.run_in(&directory, &["up"]).expect(125);
    assert!(
        refused.stderr.contains("line 5") && refused.stderr.contains("--allow-secret TOKEN"),
        "{refused:?}"
    );
    assert_eq!(world.states(), []);
    let up = world.run_in(&directory, &["up", "--allow-secret", "TOKEN"]);
    if up.stderr.contains("does not support") {
        println!("skipped: no network can be made here");
        return;
    }
    up.expect(0);
    let printed = world.run(&["exec", "vault-api", "sh", "-c", "echo $API_TOKEN"]).expect(0).text();
    assert!(printed.starts_with("wrn-secret-"), "{printed}");
    let unchanged = world.run_in(&directory, &["apply", "--allow-secret", "TOKEN"]).expect(0).text();
    assert!(unchanged.starts_with("unchanged "), "{unchanged}");
    world.project("vault", &text.replace("TOKEN=API_TOKEN", "\"no name\""));
    let refused = world.run_in(&directory, &["up", "--allow-secret", "TOKEN"]).expect(125);
    assert!(refused.stderr.contains("line 5"), "{refused:?}");
}
