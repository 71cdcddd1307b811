//! Secrets: used by name, held for as long as their sandbox lives, seen by nobody.

use engine::{
    CreateRequest, Force, ForkSpec, GivenSecrets, OwnSecret, Principal, RestoreSpec, SandboxRef, SandboxView,
    SecretRef, SecretSpec, SecretView, SnapshotSpec,
};
use sandbox::{
    CA_BUNDLE, Error, ErrorKind, HeldSecrets, Namespace, NetworkSpec, Next, Policy, Preset, Result,
    SandboxSpec, SandboxState, SecretRules, SecretValue,
};

use super::support::World;

const VALUE: &str = "ghp_the-first-value-0123456789";
const SECOND: &str = "ghp_the-second-value-0123456789";
const HOST: &str = "api.example.org";

fn secret(name: &str) -> SecretRef {
    SecretRef { namespace: None, name: name.parse().unwrap() }
}

fn rules(hosts: &[&str]) -> SecretRules {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    SecretRules { hosts, ..SecretRules::default() }
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned()).unwrap()
}

fn spec(secrets: &[&str]) -> SandboxSpec {
    let allow = vec!["*.example.org".to_owned()];
    let secrets = secrets.iter().map(|secret| secret.parse().unwrap()).collect();
    SandboxSpec {
        secrets,
        network: NetworkSpec { allow, ..NetworkSpec::default() },
        ..SandboxSpec::default()
    }
}

impl World {
    async fn set(&self, name: &str, text: &str, hosts: &[&str]) -> SecretView {
        let asked = SecretSpec { rules: rules(hosts), value: value(text) };
        self.engine.set_secret(&self.who, &secret(name), asked).await.unwrap()
    }

    fn held(&self, view: &SandboxView) -> Option<HeldSecrets> {
        self.backend.held_secrets(&view.id)
    }

    /// The value that stands for a placeholder.
    fn held_value(&self, view: &SandboxView, n: usize) -> Option<String> {
        Some(self.held(view)?.secrets.get(n)?.value.expose().to_owned())
    }

    async fn refused_with(&self, spec: SandboxSpec) -> Error {
        self.engine.create_sandbox(&self.who, spec).await.unwrap_err()
    }
}

/// With what it may be about: a value in none of it.
fn assert_silent(shown: impl std::fmt::Debug) {
    let shown = format!("{shown:?}");
    assert!(!shown.contains(VALUE) && !shown.contains(SECOND), "{shown}");
}

#[tokio::test]
async fn programs_see_a_placeholder_and_the_network_holds_the_value_while_it_lives() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    let view = world.create_from(spec(&["TOKEN=GH_TOKEN"])).await;
    let which = SandboxRef::from(&view.id);
    let held = world.held(&view).unwrap();
    assert_eq!((held.secrets.len(), held.secrets[0].value.expose()), (1, VALUE));
    assert_eq!(held.secrets[0].rules.headers, ["authorization"]);
    let placeholder = &held.secrets[0].placeholder;
    assert!(placeholder.starts_with("wrn-secret-") && placeholder.len() == 11 + 32, "{placeholder}");
    let exec = world
        .run(
            &which,
            "echo $GH_TOKEN $SSL_CERT_FILE $PIP_CERT; env; ls -ld /run/warren; ls -l $CURL_CA_BUNDLE",
        )
        .await;
    let output = world.output(&which, &exec.id).await;
    assert!(output.starts_with(&format!("{placeholder} {CA_BUNDLE} {CA_BUNDLE}\n")), "{output}");
    assert!(
        output.contains("drwxr-xr-x 2 root root") && output.contains("-rw-r--r-- 1 root root"),
        "{output}"
    );
    assert_silent(&output);
    let bundle = world.read(&which, CA_BUNDLE).await;
    assert!(bundle.ends_with("test authority 0 for api.example.org\n"), "{}", &bundle[bundle.len() - 60..]);
    let shown = world.view(&which).await;
    assert_eq!(shown.plan.secrets[0].placeholder, *placeholder);
    assert_silent((&shown, serde_json::to_string(&shown).unwrap()));
    let manifest = std::fs::read_to_string(world.directory(&view).join("manifest.json")).unwrap();
    assert_silent(manifest);
    let listed = world.engine.secrets(&world.who, None).await.unwrap();
    assert_eq!((&listed[0].used_by, listed[0].last_used_at.is_some()), (&vec![view.name.clone()], true));
    assert_silent((&listed, serde_json::to_string(&listed).unwrap()));
    // Stopped, it needs none; started, it has the same again.
    world.stop(&which).await;
    assert_eq!(world.held(&view), None);
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.held(&view), Some(held));
    assert!(world.read(&which, CA_BUNDLE).await.ends_with("test authority 0 for api.example.org\n"));
    world.remove(&which).await;
    assert_eq!(world.held(&view), None);
    assert_eq!(world.store.sandbox_secrets(view.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_sandbox_without_secrets_has_nothing_of_it() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    let which = world.create().await;
    let exec = world.run(&which, "echo $SSL_CERT_FILE; ls /run").await;
    assert_eq!(world.output(&which, &exec.id).await.trim(), "");
    assert_eq!(world.held(&world.view(&which).await), None);
}

#[tokio::test]
async fn a_daemon_that_died_leaves_secrets_held_and_lost_sandboxes_without() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    let (alive, paused) =
        (world.create_from(spec(&["TOKEN"])).await, world.create_from(spec(&["TOKEN"])).await);
    let stopped = world.create_from(spec(&["TOKEN"])).await;
    world.engine.pause_sandbox(&world.who, &SandboxRef::from(&paused.id)).await.unwrap();
    world.stop(&SandboxRef::from(&stopped.id)).await;
    let before = (world.held(&alive), world.held(&paused));
    assert!(before.0.is_some() && before.0 != before.1, "each has its own placeholder and authority");
    world.backend.forget_secrets();
    let world = world.crash().await;
    world.engine.settled().await;
    assert_eq!((world.held(&alive), world.held(&paused)), before);
    assert_eq!(world.held(&stopped), None);
}

#[tokio::test]
async fn a_changed_secret_is_held_at_once_and_a_removed_one_no_longer() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    world.set("OTHER", "other", &["other.example.org"]).await;
    let view = world.create_from(spec(&["TOKEN", "OTHER"])).await;
    let which = SandboxRef::from(&view.id);
    let again = world.set("TOKEN", SECOND, &[HOST, "second.example.org"]).await;
    assert!(again.updated_at >= again.created_at && again.rules.hosts.len() == 2);
    assert_eq!(world.held_value(&view, 0).as_deref(), Some(SECOND));
    // Its programs do not trust the authority for the new host before the next start.
    assert_eq!(world.held(&view).unwrap().secrets[0].rules.hosts.len(), 1);
    world.engine.restart_sandbox(&world.who, &which, None).await.unwrap();
    assert_eq!(world.held(&view).unwrap().secrets[0].rules.hosts.len(), 2);
    assert!(world.read(&which, CA_BUNDLE).await.contains("second.example.org"));

    let refused = world.engine.remove_secret(&world.who, &secret("TOKEN"), Force::No).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().contains(view.name.as_str())),
        (ErrorKind::WrongState, true)
    );
    assert_eq!(world.held_value(&view, 0).as_deref(), Some(SECOND));
    world.engine.remove_secret(&world.who, &secret("TOKEN"), Force::Yes).await.unwrap();
    assert_eq!(world.held_value(&view, 0).as_deref(), Some("other"));
    world.stop(&which).await;
    let refused = world.engine.start_sandbox(&world.who, &which).await.unwrap_err();
    assert_eq!(refused.next(), Some(&Next::SetSecret { name: "TOKEN".to_owned(), host: None }));
    assert_eq!((world.state(&which).await, world.held(&view)), (SandboxState::Stopped, None));
    world.set("TOKEN", VALUE, &[HOST]).await;
    world.engine.start_sandbox(&world.who, &which).await.unwrap();
    assert_eq!(world.held_value(&view, 0).as_deref(), Some(VALUE));
    let gone = world.engine.remove_secret(&world.who, &secret("NONE"), Force::Yes).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_made() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    let missing = world.refused_with(spec(&["TOKEN", "NONE"])).await;
    assert!(missing.to_string().starts_with("secrets[1]: there is no secret NONE"), "{missing}");
    let unreached = SandboxSpec { network: NetworkSpec::default(), ..spec(&["TOKEN"]) };
    let unreached = world.refused_with(unreached).await;
    assert_eq!(unreached.next(), Some(&Next::Allow(HOST.to_owned())));
    assert_eq!(world.refused_with(spec(&["TOKEN", "TOKEN"])).await.kind(), ErrorKind::InvalidRequest);
    let env = [("TOKEN".to_owned(), "mine".to_owned())].into();
    assert_eq!(
        world.refused_with(SandboxSpec { env, ..spec(&["TOKEN"]) }).await.kind(),
        ErrorKind::InvalidRequest
    );
    assert!(world.engine.sandboxes(&world.who, &Default::default()).await.unwrap().is_empty());
    assert_silent((missing, unreached));
}

#[tokio::test]
async fn a_fork_has_the_same_and_a_snapshot_has_none() {
    let world = World::with_network().await;
    world.set("TOKEN", VALUE, &[HOST]).await;
    let own = OwnSecret { name: "MINE".parse().unwrap(), value: value(SECOND), rules: rules(&[HOST]) };
    let secrets = GivenSecrets::own(vec![own]);
    let request = CreateRequest { spec: spec(&["TOKEN"]), secrets, ..CreateRequest::default() };
    let view = world.engine.create_sandbox(&world.who, request).await.unwrap();
    let which = SandboxRef::from(&view.id);
    let held = world.held(&view);
    assert_eq!(world.held_value(&view, 1).as_deref(), Some(SECOND));
    assert_silent((world.view(&which).await, &held));
    let forks =
        world.engine.fork_sandbox(&world.who, &which, ForkSpec { count: Some(2), ..ForkSpec::default() });
    for fork in forks.await.unwrap() {
        assert_eq!(world.held(&fork), held);
        assert_eq!(fork.plan.secrets, view.plan.secrets);
        let bundle = world.read(&SandboxRef::from(&fork.id), CA_BUNDLE).await;
        assert!(bundle.ends_with("test authority 0 for api.example.org\n"));
    }
    let made = SnapshotSpec { name: Some("base".parse().unwrap()), ..SnapshotSpec::new(which.clone()) };
    let snapshot = world.engine.create_snapshot(&world.who, made).await.unwrap();
    assert_silent((&snapshot, serde_json::to_string(&snapshot).unwrap()));
    let restore =
        |spec| async { world.engine.restore_snapshot(&world.who, &"base".parse().unwrap(), spec).await };
    let restored = restore(RestoreSpec::default()).await.unwrap();
    let name = Some(view.name.clone());
    let replaced = restore(RestoreSpec { name, replace: true, ..RestoreSpec::default() }).await.unwrap();
    for restored in [restored, replaced] {
        assert_eq!((world.held(&restored), restored.plan.secrets.len()), (None, 0));
        assert!(!restored.plan.env.contains_key("TOKEN") && !restored.plan.env.contains_key("SSL_CERT_FILE"));
    }
    assert_eq!(world.held(&view), None, "it was replaced");
}

#[tokio::test]
async fn secrets_belong_to_a_namespace_and_only_the_owner_sets_them() -> Result<()> {
    // So that callers with keys may have a network at all.
    let ceiling = Policy::from_spec(&NetworkSpec::preset(Preset::Public))?;
    let world = World::with(|config| config.network_ceiling = ceiling).await;
    world.backend.stand_in_for_network();
    let world = world.restart().await;
    let (red, blue): (Namespace, Namespace) = ("red".parse()?, "blue".parse()?);
    let in_red = SecretRef { namespace: Some(red.clone()), name: "TOKEN".parse()? };
    let asked = || SecretSpec { rules: rules(&[HOST]), value: value(VALUE) };
    world.engine.set_secret(&world.who, &in_red, asked()).await?;
    let (ana, ben) =
        (Principal::of_namespace("ana", red.clone()), Principal::of_namespace("ben", blue.clone()));
    assert_eq!(world.engine.secrets(&ana, None).await?.len(), 1);
    assert_eq!(world.engine.secret(&ana, &secret("TOKEN")).await?.namespace, red);
    assert!(world.engine.secrets(&ben, None).await?.is_empty());
    assert!(world.engine.secrets(&ben, Some(&red)).await?.is_empty());
    assert_eq!(world.engine.secret(&ben, &in_red).await.unwrap_err().kind(), ErrorKind::NotFound);
    for who in [&ana, &ben, &Principal::developer("dev")] {
        let set = world.engine.set_secret(who, &in_red, asked()).await.unwrap_err();
        let removed = world.engine.remove_secret(who, &in_red, Force::Yes).await.unwrap_err();
        assert_eq!((set.kind(), removed.kind()), (ErrorKind::Denied, ErrorKind::Denied));
    }
    let mine = world.engine.create_sandbox(&ana, SandboxSpec { namespace: red, ..spec(&["TOKEN"]) }).await?;
    assert_eq!(world.held_value(&mine, 0).as_deref(), Some(VALUE));
    let foreign = SandboxSpec { namespace: blue, ..spec(&["TOKEN"]) };
    let refused = world.engine.create_sandbox(&ben, foreign).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    Ok(())
}
