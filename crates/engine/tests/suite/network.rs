//! The reach of sandboxes on the network: ceilings, changes while they run, and what snapshots and forks carry. Nobody
//! serves these networks, so nothing leaves.

use engine::{NetworkChange, NetworkPatch, NetworkView, Principal, RestoreSpec, SandboxRef};
use sandbox::{Capability, ErrorKind, KeySpec, NetworkSpec, Next, Policy, Preset, SandboxSpec};

use super::{snapshots::which, support::World};

pub(crate) fn policy(preset: Preset, rules: &[&str]) -> Policy {
    Policy { preset, rules: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
}

pub(crate) fn reaching(preset: Preset, allow: &[&str]) -> SandboxSpec {
    let allow = allow.iter().map(|&rule| rule.to_owned()).collect();
    SandboxSpec { network: NetworkSpec { allow, ..NetworkSpec::preset(preset) }, ..SandboxSpec::default() }
}

pub(crate) fn allow(rule: &str) -> NetworkChange {
    NetworkChange::Patch(NetworkPatch { allow: vec![rule.to_owned()], ..NetworkPatch::default() })
}

pub(crate) async fn holder(world: &World, network: Option<Policy>) -> Principal {
    let spec = KeySpec { network, ..KeySpec::default() };
    let made = world.engine.create_key(&world.who, spec).await.unwrap();
    world.engine.authenticate_key(&made.secret).await.unwrap()
}

impl World {
    pub(crate) async fn network(&self, which: &SandboxRef) -> NetworkView {
        self.engine.network(&self.who, which).await.unwrap()
    }

    async fn refused(&self, who: &Principal, spec: SandboxSpec) {
        let error = self.engine.create_sandbox(who, spec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(matches!(error.next(), Some(Next::AskNetwork(_))), "{error:?}");
    }
}

#[tokio::test]
async fn callers_with_keys_stay_below_the_operators_ceiling() {
    let ceiling = policy(Preset::Public, &["deny *.corp.example"]);
    let world = World::with(|config| config.network_ceiling = ceiling).await;
    if !world.has(Capability::Network) {
        return;
    }
    let ana = holder(&world, None).await;
    world.refused(&ana, reaching(Preset::All, &[])).await;
    world.refused(&ana, reaching(Preset::Public, &["db.corp.example"])).await;
    world.refused(&ana, reaching(Preset::None, &["host:3000"])).await;
    let own: SandboxRef =
        world.engine.create_sandbox(&ana, reaching(Preset::Public, &[])).await.unwrap().id.into();
    assert_eq!(world.network(&own).await.ceilings, ["public, deny *.corp.example"]);
    // Not later either, and what was refused changes nothing.
    let refused = world.engine.change_network(&ana, &own, allow("host:3000")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert_eq!(world.network(&own).await.policy, NetworkSpec::preset(Preset::Public));
    // The owner is not bound by it; a caller with a key cannot lift what the owner's sandbox has above itself.
    let open: SandboxRef = world.create_from(reaching(Preset::All, &["host:3000"])).await.id.into();
    assert!(world.network(&open).await.ceilings.is_empty());
    let refused = world.engine.change_network(&ana, &open, allow("api.example")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn the_default_ceiling_leaves_package_indexes() {
    let world = World::new().await;
    let ana = holder(&world, None).await;
    world.refused(&ana, reaching(Preset::Public, &[])).await;
    world.refused(&ana, reaching(Preset::Packages, &["api.example"])).await;
    let own = world.engine.create_sandbox(&ana, SandboxSpec::default()).await.unwrap();
    assert!(own.plan.network.reaches_packages());
}

#[tokio::test]
async fn a_key_has_a_ceiling_of_its_own_which_outlives_it() {
    let ceiling = policy(Preset::Public, &["deny *.corp.example"]);
    let world = World::with(|config| config.network_ceiling = ceiling).await;
    if !world.has(Capability::Network) {
        return;
    }
    let narrow = policy(Preset::None, &["api.example:443", "x.corp.example"]);
    let ana = holder(&world, Some(narrow)).await;
    world.refused(&ana, reaching(Preset::None, &["other.example"])).await;
    // What only one of the two ceilings allows is not reached.
    world.refused(&ana, reaching(Preset::None, &["x.corp.example"])).await;
    let own = world.engine.create_sandbox(&ana, reaching(Preset::None, &["api.example:443"])).await.unwrap();
    let which = SandboxRef::from(&own.id);
    let ceilings = ["public, deny *.corp.example", "none, allow api.example:443, allow x.corp.example"];
    assert_eq!(world.network(&which).await.ceilings, ceilings);
    assert!(!own.plan.network.reaches_packages(), "the key's ceiling has no package indexes");

    let key = ana.key.clone().unwrap();
    world.engine.revoke_key(&world.who, key.as_str()).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.network(&which).await.ceilings, ceilings);
    // Another key's caller changes it within the ceilings of that key.
    let ben = holder(&world, None).await;
    world.engine.change_network(&ben, &which, allow("other.example")).await.unwrap();
    assert_eq!(world.network(&which).await.ceilings, [ceilings[0]]);
}

#[tokio::test]
async fn a_change_that_needs_a_restart_is_pending_until_then() {
    let world = World::new().await;
    if !world.has(Capability::Network) {
        return;
    }
    let which = world.create().await;
    let view = world.engine.change_network(&world.who, &which, allow("api.example")).await.unwrap();
    assert!(view.is_pending);
    assert_eq!(view.held_by.as_deref(), Some("packages"));
    let world = world.restart().await;
    assert!(world.network(&which).await.is_pending, "it still is");
    world.engine.restart_sandbox(&world.who, &which, None).await.unwrap();
    let view = world.network(&which).await;
    assert!(!view.is_pending);
    assert_eq!(view.held_by.as_deref(), Some("edge (tproxy)"));
    // A sandbox with a network takes any policy at once.
    let view = world.engine.change_network(&world.who, &which, allow("other.example")).await.unwrap();
    assert!(!view.is_pending);
    world.stop(&which).await;
    assert!(!world.network(&which).await.is_pending, "nothing runs that could lag behind");
}

#[tokio::test]
async fn what_enforces_a_policy_follows_its_change() {
    let world = World::new().await;
    let which = world.create().await;
    for (preset, hold) in [(Preset::None, "none"), (Preset::Packages, "packages")] {
        let change = NetworkChange::Replace(NetworkSpec::preset(preset));
        let view = world.engine.change_network(&world.who, &which, change).await.unwrap();
        assert_eq!((view.is_pending, view.held_by.as_deref()), (false, Some(hold)));
    }
}

#[tokio::test]
async fn forks_have_the_policy_of_their_source() {
    let world = World::new().await;
    if !world.has(Capability::Network) {
        return;
    }
    let open: SandboxRef = world.create_from(reaching(Preset::None, &["api.example"])).await.id.into();
    let forks = world.engine.fork_sandbox(&world.who, &open, Default::default()).await.unwrap();
    let fork = SandboxRef::from(&forks[0].id);
    assert_eq!(world.network(&fork).await.policy, world.network(&open).await.policy);
    // Whoever may not have such a policy gets no fork with it.
    let ana = holder(&world, None).await;
    let refused = world.engine.fork_sandbox(&ana, &open, Default::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_snapshot_opens_no_network() {
    let world = World::new().await;
    if !world.has(Capability::Network) {
        return;
    }
    for (name, spec, restored) in [
        ("open", reaching(Preset::Public, &["host:3000"]), NetworkSpec::default()),
        ("closed", reaching(Preset::None, &[]), NetworkSpec::preset(Preset::None)),
    ] {
        let source: SandboxRef = world.create_from(spec).await.id.into();
        world.snapshot(&source, name).await;
        let spec = RestoreSpec::default();
        let made = world.engine.restore_snapshot(&world.who, &which(name), spec).await.unwrap();
        assert_eq!(made.spec.network, restored, "{name}");
        let is_told = made.warnings.iter().any(|warning| warning.contains("opens more than package indexes"));
        assert_eq!(is_told, name == "open", "{:?}", made.warnings);
    }
}
