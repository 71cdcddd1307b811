//! The façade: async calls in front of a database that blocks.
//!
//! Most calls are done by a thread of the store's own. The small writes that every sandbox and every command makes are
//! done at once by whoever asks, as long as nobody else is at the database and the disk is fast: handing one to another
//! thread and waiting for its answer takes as long as the write.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use sandbox::{
    Call, Event, ExecId, KeyId, Namespace, PackageJobId, RequestId, SandboxId, SandboxName, SecretName,
    ShareId, SnapshotId, SshKeyId, SshKeyView, VolumeId,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    CallQuery, ExecRecord, KeyRecord, NewCall, NewEvent, PackageJobRecord, SandboxRecord, SandboxRows,
    SandboxSecrets, SecretRecord, ShareRecord, SnapshotRecord, SnapshotRows, StoreError, VolumeRecord,
    VolumeRows, calls,
    database::{self, Database},
    desk::Desk,
    events, execs, keys, packages, sandboxes, secrets, shares, snapshots, ssh_keys, volumes,
};

/// Calls that wait for the thread; one more waits in its caller.
const MAX_QUEUED: usize = 256;

enum Command {
    Run(Box<dyn FnOnce(&mut Database) + Send>),
    /// Fold the write-ahead log into the database.
    Checkpoint,
    Close(oneshot::Sender<()>),
}

/// Records of sandboxes, execs and events. Clones share one database and one thread, which ends with the last clone or
/// with [`Store::close`].
///
/// A call whose future is dropped may still take effect: it was sent.
#[derive(Clone)]
pub struct Store {
    commands: mpsc::Sender<Command>,
    desk: Arc<Desk>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("is_closed", &self.commands.is_closed()).finish()
    }
}

impl Store {
    /// Opens `home/warren.db`, making the directory (0700) and the file (0600) where they are missing, and brings its
    /// tables up to date.
    pub fn open(home: &Path) -> Result<Self, StoreError> {
        let database = Database::open(home)?;
        let (commands, inbox) = mpsc::channel(MAX_QUEUED);
        let desk = Arc::new(Desk::new(database));
        let served = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || serve(&served, inbox))
            .map_err(|source| StoreError::Io { what: "start a thread for", path: home.to_owned(), source })?;
        Ok(Self { commands, desk })
    }

    /// Gives the database of a home another name, which ends with `suffix`. Returns that name; none when there is no
    /// database. Nobody may have it open.
    pub fn set_aside(home: &Path, suffix: &str) -> Result<Option<PathBuf>, StoreError> {
        database::set_aside(home, suffix)
    }

    /// Whether the database is known to be the one that its home was last used with: not a new one, not an old copy,
    /// not another home's. What it does not know of is no leftover otherwise.
    pub async fn is_of_home(&self) -> Result<bool, StoreError> {
        self.run(|database| Ok(database.is_of_home)).await
    }

    /// From now on it is.
    pub async fn bind_to_home(&self) -> Result<(), StoreError> {
        self.run(Database::bind_to_home).await
    }

    /// Changes when the database does not continue the one before it: a new one, an old copy, another home's. `None`
    /// until it is bound to its home.
    pub async fn history(&self) -> Result<Option<String>, StoreError> {
        self.run(|database| Ok(database.mark()?.filter(|_| database.is_of_home).map(|mark| mark.id))).await
    }

    /// Fails with `RequestKnown` when the namespace has a sandbox for the same request id, else with `NameTaken` when
    /// it has one of the same name.
    pub async fn insert_sandbox(&self, record: SandboxRecord) -> Result<(), StoreError> {
        self.run(move |database| sandboxes::insert(database, &record)).await
    }

    /// The same with the record of its first exec, both or none.
    pub async fn insert_sandbox_with(
        &self,
        record: SandboxRecord,
        first: Option<ExecRecord>,
    ) -> Result<(), StoreError> {
        self.run_at_once(move |database| match &first {
            Some(first) => sandboxes::insert_with(database, &record, first),
            None => sandboxes::insert(database, &record),
        })
        .await
    }

    /// Replaces the whole record; `Missing` when there is none of that id.
    pub async fn update_sandbox(&self, record: SandboxRecord) -> Result<(), StoreError> {
        self.run_at_once(move |database| sandboxes::update(database, &record)).await
    }

    pub async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.run(move |database| sandboxes::by_id(database, &id)).await
    }

    pub async fn sandbox_named(
        &self,
        namespace: Namespace,
        name: SandboxName,
    ) -> Result<Option<SandboxRecord>, StoreError> {
        self.run(move |database| sandboxes::by_name(database, &namespace, &name)).await
    }

    /// All of them, or those of one namespace, oldest first.
    pub async fn sandboxes(&self, namespace: Option<Namespace>) -> Result<SandboxRows, StoreError> {
        self.run(move |database| sandboxes::all(database, namespace.as_ref())).await
    }

    /// Removes the record with those of its execs, all or nothing. Works for a corrupt record too.
    pub async fn remove_sandbox(&self, id: SandboxId) -> Result<(), StoreError> {
        self.run(move |database| sandboxes::remove(database, &id)).await
    }

    /// Fails with `RequestKnownExec` when the sandbox has an exec for the same request id, with `Missing` when there is
    /// no such sandbox.
    pub async fn insert_exec(&self, record: ExecRecord) -> Result<(), StoreError> {
        self.run_at_once(move |database| execs::insert(database, &record)).await
    }

    pub async fn update_exec(&self, record: ExecRecord) -> Result<(), StoreError> {
        self.run_at_once(move |database| execs::update(database, &record)).await
    }

    pub async fn exec(&self, id: ExecId) -> Result<Option<ExecRecord>, StoreError> {
        self.run(move |database| execs::by_id(database, &id)).await
    }

    pub async fn exec_requested(
        &self,
        sandbox: SandboxId,
        request: RequestId,
    ) -> Result<Option<ExecRecord>, StoreError> {
        self.run(move |database| execs::by_request(database, &sandbox, &request)).await
    }

    /// Oldest first.
    pub async fn execs(&self, sandbox: SandboxId) -> Result<Vec<ExecRecord>, StoreError> {
        self.run(move |database| execs::of_sandbox(database, &sandbox)).await
    }

    /// Returns those of [`Store::execs`] that have not ended.
    pub async fn unfinished_execs(&self, sandbox: SandboxId) -> Result<Vec<ExecRecord>, StoreError> {
        self.run(move |database| execs::unfinished(database, &sandbox)).await
    }

    /// Execs that have ended and are not among the newest `n_kept`, oldest first.
    pub async fn surplus_execs(&self, sandbox: SandboxId, n_kept: u32) -> Result<Vec<ExecId>, StoreError> {
        self.run(move |database| execs::surplus(database, &sandbox, n_kept)).await
    }

    /// All of them or none; ids that are gone already are fine.
    pub async fn remove_execs(&self, ids: Vec<ExecId>) -> Result<(), StoreError> {
        self.run(move |database| execs::remove(database, &ids)).await
    }

    /// The sandbox's oldest jobs that have ended go when there are more than [`crate::MAX_PACKAGE_JOBS`].
    pub async fn insert_package_job(&self, record: PackageJobRecord) -> Result<(), StoreError> {
        self.run(move |database| packages::insert(database, &record)).await
    }

    pub async fn update_package_job(&self, record: PackageJobRecord) -> Result<(), StoreError> {
        self.run(move |database| packages::update(database, &record)).await
    }

    pub async fn package_job(&self, id: PackageJobId) -> Result<Option<PackageJobRecord>, StoreError> {
        self.run(move |database| packages::by_id(database, &id)).await
    }

    pub async fn package_job_requested(
        &self,
        sandbox: SandboxId,
        request: RequestId,
    ) -> Result<Option<PackageJobRecord>, StoreError> {
        self.run(move |database| packages::by_request(database, &sandbox, &request)).await
    }

    /// Oldest first.
    pub async fn package_jobs(&self, sandbox: SandboxId) -> Result<Vec<PackageJobRecord>, StoreError> {
        self.run(move |database| packages::of_sandbox(database, &sandbox)).await
    }

    /// Returns the package jobs of all sandboxes that no daemon has seen the end of.
    pub async fn unfinished_package_jobs(&self) -> Result<Vec<PackageJobRecord>, StoreError> {
        self.run(|database| packages::unfinished(database)).await
    }

    /// Fails with `SnapshotTaken` when the namespace has one of the same name, or the same one.
    pub async fn insert_snapshot(&self, record: SnapshotRecord) -> Result<(), StoreError> {
        self.run(move |database| snapshots::insert(database, &record)).await
    }

    /// As [`Store::insert_snapshot`], with the name taken from another in the same step.
    pub async fn replace_snapshot(
        &self,
        before: SnapshotId,
        record: SnapshotRecord,
    ) -> Result<(), StoreError> {
        self.run(move |database| snapshots::replace(database, &before, &record)).await
    }

    pub async fn update_snapshot(&self, record: SnapshotRecord) -> Result<(), StoreError> {
        self.run(move |database| snapshots::update(database, &record)).await
    }

    /// Whether there was one.
    pub async fn remove_snapshot(&self, id: SnapshotId) -> Result<bool, StoreError> {
        self.run(move |database| snapshots::remove(database, &id)).await
    }

    /// Oldest first.
    pub async fn snapshots(&self) -> Result<SnapshotRows, StoreError> {
        self.run(|database| snapshots::all(database)).await
    }

    /// Gives the events their numbers, in their order; all of them or none. The oldest events go when there are more
    /// than [`crate::MAX_EVENTS`].
    pub async fn append_events(&self, events: Vec<NewEvent>) -> Result<Vec<Event>, StoreError> {
        self.run_at_once(move |database| events::append(database, events)).await
    }

    /// Events from number `from` on, at most `limit` of them.
    pub async fn events(&self, from: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.run(move |database| events::read(database, from, limit)).await
    }

    /// Fails with `LabelTaken` when a key that was not revoked has the same label.
    pub async fn insert_key(&self, record: KeyRecord) -> Result<(), StoreError> {
        self.run(move |database| keys::insert(database, &record)).await
    }

    pub async fn revoke_key(&self, id: KeyId, at: Timestamp) -> Result<(), StoreError> {
        self.run(move |database| keys::revoke(database, &id, at)).await
    }

    /// Writes down when a key was last used.
    pub async fn touch_key(&self, id: KeyId, at: Timestamp) -> Result<(), StoreError> {
        self.run(move |database| keys::touch(database, &id, at)).await
    }

    /// Oldest first, revoked ones too.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.run(|database| keys::all(database)).await
    }

    /// All of them or none; ids that are gone already are fine.
    pub async fn remove_keys(&self, ids: Vec<KeyId>) -> Result<(), StoreError> {
        self.run(move |database| keys::remove(database, &ids)).await
    }

    /// Fails with `SshKeyTaken` when it is bound already.
    pub async fn insert_ssh_key(&self, record: SshKeyView) -> Result<(), StoreError> {
        self.run(move |database| ssh_keys::insert(database, &record)).await
    }

    /// Oldest first.
    pub async fn ssh_keys(&self) -> Result<Vec<SshKeyView>, StoreError> {
        self.run(|database| ssh_keys::all(database)).await
    }

    pub async fn remove_ssh_key(&self, id: SshKeyId) -> Result<(), StoreError> {
        self.run(move |database| ssh_keys::remove(database, &id)).await
    }

    pub async fn insert_share(&self, record: ShareRecord) -> Result<(), StoreError> {
        self.run(move |database| shares::insert(database, &record)).await
    }

    /// Oldest first.
    pub async fn shares(&self) -> Result<Vec<ShareRecord>, StoreError> {
        self.run(|database| shares::all(database)).await
    }

    pub async fn remove_shares(&self, ids: Vec<ShareId>) -> Result<(), StoreError> {
        self.run(move |database| shares::remove(database, &ids)).await
    }

    /// All of them or none, in one transaction. The oldest calls go when there are more than [`crate::MAX_CALLS`].
    /// Returns their numbers.
    pub async fn append_calls(&self, calls: Vec<NewCall>) -> Result<Vec<u64>, StoreError> {
        self.run(move |database| calls::append(database, &calls)).await
    }

    pub async fn calls(&self, query: CallQuery) -> Result<Vec<Call>, StoreError> {
        self.run(move |database| calls::read(database, &query)).await
    }

    /// Fails with `VolumeTaken` when the namespace has one of the same name.
    pub async fn insert_volume(&self, record: VolumeRecord) -> Result<(), StoreError> {
        self.run(move |database| volumes::insert(database, &record)).await
    }

    /// Replaces the whole record; `Missing` when there is none of that id.
    pub async fn update_volume(&self, record: VolumeRecord) -> Result<(), StoreError> {
        self.run(move |database| volumes::update(database, &record)).await
    }

    /// Returns the volumes of all namespaces, oldest first.
    pub async fn volumes(&self) -> Result<VolumeRows, StoreError> {
        self.run(|database| volumes::all(database)).await
    }

    /// Works for a corrupt record too.
    pub async fn remove_volume(&self, id: VolumeId) -> Result<(), StoreError> {
        self.run(move |database| volumes::remove(database, &id)).await
    }

    /// Writes a secret, in place of one of the same name in the namespace.
    pub async fn set_secret(&self, record: SecretRecord) -> Result<(), StoreError> {
        self.run(move |database| secrets::set(database, &record)).await
    }

    /// Returns the secrets of all namespaces, by name.
    pub async fn secrets(&self) -> Result<Vec<SecretRecord>, StoreError> {
        self.run(|database| secrets::all(database)).await
    }

    /// Whether there was one.
    pub async fn remove_secret(&self, namespace: Namespace, name: SecretName) -> Result<bool, StoreError> {
        self.run(move |database| secrets::remove(database, &namespace, &name)).await
    }

    /// Writes down when secrets were last used.
    pub async fn touch_secrets(
        &self,
        namespace: Namespace,
        names: Vec<SecretName>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.run(move |database| secrets::touch(database, &namespace, &names, at)).await
    }

    /// Writes what a sandbox with secrets has of its own. It goes with the sandbox's record.
    pub async fn set_sandbox_secrets(
        &self,
        sandbox: SandboxId,
        secrets: SandboxSecrets,
    ) -> Result<(), StoreError> {
        self.run(move |database| secrets::set_of_sandbox(database, &sandbox, &secrets)).await
    }

    pub async fn sandbox_secrets(&self, sandbox: SandboxId) -> Result<Option<SandboxSecrets>, StoreError> {
        self.run(move |database| secrets::of_sandbox(database, &sandbox)).await
    }

    /// Waits for what was asked before, then closes the database. Later calls fail with `Closed`. Safe to call twice.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Close(done)).await.is_ok() {
            // An error means that the thread ended before it came to us: closed all the same.
            closed.await.unwrap_or(());
        }
    }

    /// Runs a small write here and now, if that is possible without waiting.
    async fn run_at_once<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.try_at_once(work) {
            Ok(done) => done,
            Err(work) => self.run(work).await,
        }
    }

    /// Returns the work if it has to wait.
    fn try_at_once<T, W: FnOnce(&mut Database) -> Result<T, StoreError>>(
        &self,
        work: W,
    ) -> Result<Result<T, StoreError>, W> {
        let Some(mut turn) = self.desk.turn_at_once() else { return Err(work) };
        let done = turn.timed(work);
        if turn.is_checkpoint_due() {
            // The queue may be full, or closed: then it is due again after the next write.
            drop(self.commands.try_send(Command::Checkpoint));
        }
        Ok(done)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Run(Box::new(move |database| {
            // The caller may have gone away; its work is done all the same.
            reply.send(work(database)).unwrap_or(());
        }));
        self.commands.send(command).await.map_err(|_unsent| StoreError::Closed)?;
        answer.await.map_err(|_dropped| StoreError::Closed)?
    }
}

fn serve(desk: &Desk, mut inbox: mpsc::Receiver<Command>) {
    let mut closed = None;
    while let Some(command) = inbox.blocking_recv() {
        match command {
            Command::Run(work) => {
                let mut turn = desk.turn();
                turn.count_write();
                // Only we close it, below.
                if let Some(database) = turn.database() {
                    work(database);
                }
                if turn.is_checkpoint_due() {
                    turn.checkpoint();
                }
            }
            Command::Checkpoint => desk.turn().checkpoint(),
            Command::Close(done) => {
                closed = Some(done);
                break;
            }
        }
    }
    // Closing the last connection folds the write-ahead log into the database.
    desk.close();
    drop(inbox);
    if let Some(done) = closed {
        done.send(()).unwrap_or(());
    }
}
