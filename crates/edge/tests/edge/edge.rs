//! The edge as the daemon has it: in a thread, with a client.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use edge::{Around, Client, Counters, EdgeReport};
use sandbox::{
    HeldSecrets, SandboxId,
    network::{NetworkEvent, NetworkEventKind, NetworkPlan, NetworkSpec, Preset, plan_network},
};
use tokio::runtime::Runtime;

use super::{inside::Inside, world::PATIENCE};

pub(crate) struct Edge {
    runtime: Runtime,
    client: Option<Client>,
    told: Arc<Mutex<Vec<NetworkEvent>>>,
    counters: Arc<Mutex<Counters>>,
    process: Option<thread::JoinHandle<ExitCode>>,
}

/// A plan from a preset and rules that allow; those that begin with `deny` deny.
pub(crate) fn plan(preset: Preset, rules: &[&str]) -> NetworkPlan {
    let of = |deny: bool| {
        let own = rules.iter().filter(|rule| rule.starts_with("deny ") == deny);
        own.map(|rule| rule.trim_start_matches("deny ").to_owned()).collect()
    };
    let spec =
        NetworkSpec { preset: Some(preset), allow: of(false), deny: of(true), ..NetworkSpec::default() };
    plan_network(&spec, &[]).unwrap()
}

impl Edge {
    /// Asks the DNS server of the world.
    pub(crate) fn start() -> Self {
        Self::start_with(Around { resolv_conf: "nameserver 10.9.9.9\n".to_owned(), ..Around::default() })
    }

    pub(crate) fn start_with(around: Around) -> Self {
        let (ours, theirs) = Client::pair().unwrap();
        let process = thread::spawn(move || edge::serve(theirs, || {}));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (told, counters) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Counters>>::default());
        let client = runtime.block_on(async {
            let (client, mut tells) = Client::new(ours).unwrap();
            let (told, counters) = (Arc::clone(&told), Arc::clone(&counters));
            tokio::spawn(async move {
                while let Some(tell) = tells.recv().await {
                    match tell {
                        EdgeReport::Events(events) => told.lock().unwrap().extend(events),
                        EdgeReport::Counters(all) => *counters.lock().unwrap() = all[0].1,
                        EdgeReport::CaughtUp(_) | EdgeReport::Lost(_) => {}
                    }
                }
            });
            client.around(&around).await.unwrap();
            client
        });
        Self { runtime, client: Some(client), told, counters, process: Some(process) }
    }

    /// Makes a sandbox and serves it.
    pub(crate) fn add(&self, number: u8, plan: &NetworkPlan) -> Inside {
        self.add_with(number, plan, None)
    }

    pub(crate) fn add_with(&self, number: u8, plan: &NetworkPlan, secrets: Option<&HeldSecrets>) -> Inside {
        let (inside, sockets) = Inside::new();
        self.runtime.block_on(self.client().add(&id(number), plan, secrets, &sockets)).unwrap();
        inside
    }

    pub(crate) fn hold(&self, number: u8, secrets: Option<&HeldSecrets>) {
        self.runtime.block_on(self.client().hold_secrets(&id(number), secrets)).unwrap();
    }

    /// Says which root certificates the host trusts.
    pub(crate) fn trust(&self, roots: Vec<Vec<u8>>) {
        self.runtime.block_on(self.client().trust(roots)).unwrap();
    }

    pub(crate) fn update(&self, number: u8, plan: &NetworkPlan) {
        self.runtime.block_on(self.client().update(&id(number), plan)).unwrap();
    }

    pub(crate) fn remove(&self, number: u8) {
        self.runtime.block_on(self.client().drop_sandbox(&id(number))).unwrap();
    }

    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    /// Waits for an event.
    pub(crate) fn event(&self, is_it: impl Fn(&NetworkEvent) -> bool) -> NetworkEvent {
        let start = Instant::now();
        loop {
            if let Some(event) = self.told.lock().unwrap().iter().find(|event| is_it(event)) {
                return event.clone();
            }
            assert!(start.elapsed() < PATIENCE, "only these happened: {:#?}", self.told.lock().unwrap());
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn denial(&self, port: u16) -> NetworkEvent {
        self.event(|event| event.kind == NetworkEventKind::Denied && event.port == port)
    }

    pub(crate) fn events(&self) -> Vec<NetworkEvent> {
        self.told.lock().unwrap().clone()
    }

    /// Waits for counters.
    pub(crate) fn counters(&self, are_they: impl Fn(&Counters) -> bool) -> Counters {
        let start = Instant::now();
        loop {
            let counters = *self.counters.lock().unwrap();
            if are_they(&counters) {
                return counters;
            }
            assert!(start.elapsed() < PATIENCE, "{counters:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the daemon's end, and waits for the edge to end.
    pub(crate) fn stop(&mut self) -> ExitCode {
        drop(self.client.take());
        self.process.take().unwrap().join().unwrap()
    }
}

pub(crate) fn id(number: u8) -> SandboxId {
    SandboxId::from_random([number; 8])
}
