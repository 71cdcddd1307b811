//! Logging in to registries, and pushing to them.

use test_registry::Registry;

use crate::{
    images::import,
    support::{Finished, World, finish},
    terminal::Pty,
};

const USER: &str = "ana";
const PASSWORD: &str = "a-very-secret-password";

fn log_in(world: &World, registry: &Registry, password: &str) -> Finished {
    let args = ["login", "-u", USER, "--password-stdin", registry.address()];
    world.run_with_input(&args, password.as_bytes())
}

#[test]
fn an_image_is_pushed_to_a_registry_that_was_logged_in_to() {
    let world = World::new();
    let registry = Registry::start_with_password(USER, PASSWORD);
    import(&world, "it");
    let name = registry.reference("team/it:1");
    let denied = world.run(&["push", "it", "--to", &name]).expect(125);
    assert!(denied.stderr.contains("credentials"), "{denied:?}");
    let login = |password: &str| log_in(&world, &registry, password);
    assert!(login("wrong").expect(125).stderr.contains("credentials"));
    let config = world.files().parent().unwrap().join(".docker/config.json");
    assert!(!config.exists(), "a password that was refused is not kept");
    assert_eq!(login(&format!("{PASSWORD}\n")).expect(0).text(), "Login succeeded\n");
    assert!(!world.log().contains(PASSWORD));

    let pushed = world.run(&["push", "it", "--to", &name]).expect(0).text();
    let digest = pushed.trim().split_once('@').unwrap().1.to_owned();
    assert!(pushed.starts_with(&name) && digest.starts_with("sha256:"), "{pushed}");
    // Again: nothing is sent twice, and it is the same image.
    assert_eq!(world.run(&["push", "it", "--to", &name]).expect(0).text(), pushed);
    // The image that was pushed is the one that is pulled.
    world.run(&["image", "prune", "--force"]).expect(0);
    assert_eq!(world.run(&["pull", "--quiet", &name]).expect(0).text().trim(), digest);
    let ran = world.run(&["run", "--image", &name, "--", "cat", "/etc/word"]).expect(0);
    assert_eq!(ran.text(), "from the image\n");

    world.run(&["logout", registry.address()]).expect(0);
    let denied = world.run(&["push", &name]).expect(125);
    assert!(denied.stderr.contains("credentials"), "{denied:?}");
}

#[test]
fn a_registry_with_a_token_service_is_pushed_to() {
    let world = World::new();
    let registry = Registry::start_with_token_service(USER, PASSWORD);
    import(&world, "it");
    let name = registry.reference("team/it:1");
    // A token for nothing opens nothing.
    let denied = world.run(&["push", "it", "--to", &name]).expect(125);
    assert!(denied.stderr.contains("credentials"), "{denied:?}");
    assert!(log_in(&world, &registry, "wrong").expect(125).stderr.contains("credentials"));
    log_in(&world, &registry, PASSWORD).expect(0);

    let pushed = world.run(&["push", "it", "--to", &name]).expect(0).text();
    let digest = pushed.trim().split_once('@').unwrap().1.to_owned();
    let asked = registry.asked_scopes();
    // As the registry worded it: its order changes.
    let both = |scope: &String| {
        matches!(scope.as_str(), "repository:team/it:pull,push" | "repository:team/it:push,pull")
    };
    assert!(asked.iter().any(both), "{asked:?}");
    world.run(&["image", "prune", "--force"]).expect(0);
    assert_eq!(world.run(&["pull", "--quiet", &name]).expect(0).text().trim(), digest);
    // Another client sees the same image.
    let raw = std::process::Command::new("skopeo")
        .args(["inspect", "--tls-verify=false", "--format", "{{.Digest}}", "--creds"])
        .arg(format!("{USER}:{PASSWORD}"))
        .arg(format!("docker://{name}"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&raw.stdout).trim(), digest, "{raw:?}");
    world.run(&["logout", registry.address()]).expect(0);
    world.run(&["push", &name]).expect(125);
}

#[test]
fn a_terminal_asks_for_name_and_password() {
    let world = World::new();
    let registry = Registry::start_with_password(USER, PASSWORD);
    let mut pty = Pty::new(24, 80);
    let child = pty.start(&world, &["login", registry.address()]);
    pty.expect_first("User name");
    pty.type_in(&format!("{USER}\r"));
    pty.expect_first("(not shown)");
    pty.type_in(&format!("{PASSWORD}\r"));
    assert!(!pty.expect_and_see("Login succeeded").contains(PASSWORD));
    finish(child).expect(0);
    // Nobody can be asked in a script.
    let refused = world.run(&["login", registry.address()]).expect(125);
    assert!(refused.stderr.contains("--username"), "{refused:?}");
    let unreachable = world.run_with_input(&["login", "-u", "a", "--password-stdin", "127.0.0.1:1"], b"b");
    assert!(unreachable.expect(125).stderr.contains("could not connect"));
    assert!(world.run(&["logout", "nowhere.example"]).expect(0).text().contains("nowhere.example"));
}
