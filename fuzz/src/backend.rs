//! Sandboxes in which nothing happens: their guest greets, and refuses whatever it is asked.
//!
//! The targets are about the front ends and the engine. Behind real sandboxes they would run what the fuzzer makes up,
//! with an operator's right to mount any path of the host; and an input that fails aborts the process, which would
//! leave them behind.

use std::error::Error;

use async_trait::async_trait;
use bytes::BytesMut;
use guest_protocol::{Decoder, Failure, FailureKind, Frame, FrameKind, Hello, Request, encode};
use sandbox::{
    Backend, BackendError, BackendKind, BackendVolumes, ByteSize, Capabilities, GuestStream, Instance,
    Isolation, SandboxId, SandboxPlan, Usage, VolumeId, VolumeKind, VolumeStorage, Walls,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_util::sync::CancellationToken;

const KIND: BackendKind = BackendKind::Namespace;
/// What a connection holds on its way, as a Unix socket would.
const CONNECTION_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct RefusingBackend;

#[async_trait]
impl Backend for RefusingBackend {
    fn kind(&self) -> BackendKind {
        KIND
    }

    async fn probe(&self) -> Result<Capabilities, BackendError> {
        Ok(Capabilities::all(KIND))
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(Place::new(&plan.id)))
    }

    async fn adopt(&self, _plan: &SandboxPlan) -> Result<Option<Box<dyn Instance>>, BackendError> {
        Ok(None)
    }

    async fn sweep(
        &self,
        _alive: &[SandboxId],
        _known: &[SandboxId],
    ) -> Result<Vec<SandboxId>, BackendError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _id: &SandboxId) -> Result<(), BackendError> {
        Ok(())
    }

    fn volumes(&self) -> Option<&dyn BackendVolumes> {
        Some(self)
    }
}

#[async_trait]
impl BackendVolumes for RefusingBackend {
    async fn make(
        &self,
        _id: &VolumeId,
        _kind: VolumeKind,
        _limit: Option<ByteSize>,
    ) -> Result<VolumeStorage, BackendError> {
        Ok(VolumeStorage::Directory)
    }

    async fn used(&self, _id: &VolumeId) -> Result<u64, BackendError> {
        Ok(0)
    }

    async fn remove(&self, _id: &VolumeId) -> Result<(), BackendError> {
        Ok(())
    }

    async fn open(&self, place: &SandboxId, _id: &VolumeId) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(Place::new(place)))
    }
}

#[derive(Debug)]
struct Place {
    id: SandboxId,
    isolation: Isolation,
    end: CancellationToken,
}

impl Place {
    fn new(id: &SandboxId) -> Self {
        let isolation = Isolation {
            backend: KIND,
            walls: Walls::Nothing,
            rootless: true,
            id_map: "single".to_owned(),
            namespaces: Vec::new(),
            capabilities: Vec::new(),
            no_new_privileges: true,
            seccomp: None,
            network: sandbox::NetworkHold::Loopback,
            cgroups: "none".to_owned(),
            limits: Vec::new(),
            warnings: Vec::new(),
        };
        Self { id: id.clone(), isolation, end: CancellationToken::new() }
    }
}

#[async_trait]
impl Instance for Place {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    async fn connect(&self) -> Result<GuestStream, BackendError> {
        if self.end.is_cancelled() {
            return Err(BackendError::Gone(self.id.clone()));
        }
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        let end = self.end.clone();
        // A connection that ends in an error is one that the engine has left.
        tokio::spawn(async move { end.run_until_cancelled(refuse(theirs)).await.map(Result::ok) });
        Ok(Box::new(ours))
    }

    async fn stop(&self) -> Result<(), BackendError> {
        self.end.cancel();
        Ok(())
    }

    async fn pause(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn resume(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn usage(&self) -> Result<Usage, BackendError> {
        Ok(Usage::default())
    }

    async fn ended(&self) {
        self.end.cancelled().await;
    }
}

/// Serves one connection until the engine leaves.
async fn refuse(mut host: DuplexStream) -> Result<(), Box<dyn Error + Send + Sync>> {
    let refusal = Failure::new(FailureKind::NotFound, "there is nothing in here");
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
    send(&mut host, &Frame::json(FrameKind::Hello, &Hello::of_build("fuzz"))?).await?;
    loop {
        let Some(frame) = decoder.decode(&mut buffer)? else {
            if host.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        // A request with a body is answered after its end.
        let is_whole = match frame.kind {
            FrameKind::Request => !frame.parse::<Request>()?.properties().has_body,
            kind => kind == FrameKind::End,
        };
        if is_whole {
            send(&mut host, &Frame::json(FrameKind::Failure, &refusal)?).await?;
        }
    }
}

async fn send(host: &mut DuplexStream, frame: &Frame) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut bytes = BytesMut::new();
    encode(frame, &mut bytes)?;
    Ok(host.write_all(&bytes).await?)
}
