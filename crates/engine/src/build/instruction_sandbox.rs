//! One sandbox for one instruction: made from the image so far, gone when the instruction's layer is taken.

use std::{fs::File, os::fd::OwnedFd, sync::Arc, time::Duration};

use ::images::Progress;
use sandbox::{
    Error, ErrorKind, ExecOutcome, ExecSpec, ImageRef, NetworkSpec, PullPolicy, Result, SandboxSpec,
};

use tokio::sync::oneshot;

use super::{BuildEvent, Builder, label};
use crate::{Engine, EntryBody, Force, OutputStream, RunOptions, SandboxRef, TextDecoder, error};

/// A sandbox that ends with the instruction it was made for.
pub(super) struct InstructionSandbox<'a> {
    builder: &'a Arc<Builder>,
    pub(super) which: SandboxRef,
}

impl Engine {
    /// Takes away the sandbox of an instruction, whatever it does.
    async fn end_instruction_sandbox(&self, builder: &Builder, which: &SandboxRef) {
        match self.remove_sandbox(&builder.who, which, Force::Yes).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%which, error = &error as &dyn std::error::Error, "the sandbox of a build stays");
            }
            _ => builder.forget(which),
        }
    }
}

impl<'a> InstructionSandbox<'a> {
    pub(super) async fn make(
        builder: &'a Arc<Builder>,
        image: &::images::Image,
        network: NetworkSpec,
    ) -> Result<Self> {
        let image: ImageRef = image.digest.as_str().parse().map_err(|error| {
            Error::new(ErrorKind::Internal, "an image cannot be named by its digest").with_source(error)
        })?;
        let (key, value) = label(&builder.id);
        let spec = SandboxSpec {
            name: Some(builder.next_name()?),
            image,
            pull: PullPolicy::Never,
            labels: [(key, value)].into(),
            network,
            ..SandboxSpec::default()
        };
        let (sender, made) = oneshot::channel();
        let worker = Arc::clone(builder);
        // Goes on to its end when nobody waits any more, since only then it is known what there is to take away.
        builder.engine.core().drivers.spawn(async move {
            let made = worker.engine.create_any(&worker.who, spec.into(), Progress::none(), None).await;
            let which = made.as_ref().ok().map(|view| SandboxRef::from(&view.id));
            if let Some(which) = &which {
                worker.remember(which.clone());
            }
            if sender.send(made).is_err()
                && let Some(which) = which
            {
                worker.engine.end_instruction_sandbox(&worker, &which).await;
            }
        });
        let view = made.await.map_err(|_dropped| error::closing())??;
        Ok(Self { builder, which: SandboxRef::from(&view.id) })
    }

    pub(super) async fn end(self) {
        self.builder.engine.end_instruction_sandbox(self.builder, &self.which).await;
    }

    /// Runs a command to its end and passes its output on.
    pub(super) async fn run(&self, spec: ExecSpec) -> Result<ExecOutcome> {
        let Builder { engine, who, .. } = &**self.builder;
        let exec = engine.exec(who, &self.which, spec).await?;
        let mut run = engine.run_to_end(who, &exec, RunOptions::default()).await?;
        let mut decoders = (TextDecoder::default(), TextDecoder::default());
        while let Some(entry) = run.next().await {
            let (stream, text) = match entry?.body {
                EntryBody::Stdout(bytes) => (OutputStream::Stdout, decoders.0.take(&bytes)),
                EntryBody::Stderr(bytes) => (OutputStream::Stderr, decoders.1.take(&bytes)),
                EntryBody::Trimmed { .. } => (OutputStream::Stderr, "\n[some output omitted]\n".to_owned()),
                _ => continue,
            };
            if !text.is_empty() {
                self.builder.tell(BuildEvent::Output { stream, text }).await;
            }
        }
        let end = run.end().await?;
        end.outcome()
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a command of the build has no end"))
    }

    /// Stops it and writes what changed in it as a layer; `None` when nothing did.
    pub(super) async fn layer(&self) -> Result<Option<File>> {
        let Builder { engine, who, spool, .. } = &**self.builder;
        engine.stop_sandbox(who, &self.which, Some(Duration::ZERO)).await?;
        let core = engine.core();
        let shared = core.find(who, &self.which)?;
        let plan = shared.status.borrow().record.plan.clone();
        let file = spool.file()?;
        let archive = OwnedFd::from(file.try_clone().map_err(unreadable)?);
        let packed = core.backends.images_of(&plan)?.pack_layer(&plan, archive).await;
        packed.map_err(|error| error::from_backend(error, &shared.label()))?;
        has_members(&file).map(|has| has.then_some(file))
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot write a layer").with_source(error)
}

/// Whether a tar has more than its end.
fn has_members(file: &File) -> Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut first = [0; 512];
    let n = file.read_at(&mut first, 0).map_err(unreadable)?;
    Ok(first[..n].iter().any(|byte| *byte != 0))
}

/// Takes away all that a build which was broken off has left.
pub(super) async fn clear(builder: &Arc<Builder>) {
    for which in builder.places() {
        builder.engine.end_instruction_sandbox(builder, &which).await;
    }
}
