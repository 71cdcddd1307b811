//! From the first instruction to the last.

use std::{collections::BTreeMap, fs::File, io::Seek as _, sync::Arc, time::Duration};

use ::build::{
    Base, Config, CopyStep, Dockerfile, Ignore, Located, Network, Plan, RunStep, Scope, Stage, StageRef,
    Step, Target,
};
use ::images::{
    Commit, Digest, History, Image, ImageConfig, Images, Origin, Platform, PullOptions, Reference,
};
use sandbox::{Error, ErrorKind, ExecOutcome, ExecSpec, NetworkSpec, Preset, PullPolicy, Result};
use tokio::time::Instant;

use super::{
    BuildEvent, BuildSpec, Builder, BuiltImage, DockerfileSource, MAX_STEPS, OUTSIDE_DOCKERFILE,
    context::Context,
    copying::Load,
    instruction_sandbox::InstructionSandbox,
    keys,
    network::{self, Reach},
};
use crate::{ByteStream, disk::may_block, images::from_images};

/// Largest `.dockerignore`.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;
/// The user of instructions before any `USER`.
const ROOT: &str = "0:0";
/// An archive with nothing in it.
const EMPTY_TAR: [u8; 1024] = [0; 1024];

/// Where a stage has come to.
#[derive(Debug, Clone)]
struct State<'a> {
    /// The image so far; none before the first file of a stage that begins with nothing.
    image: Option<Image>,
    origin: Origin,
    scope: Scope<'a>,
}

struct Walk<'a> {
    builder: &'a Arc<Builder>,
    images: Images,
    plan: &'a Plan,
    spec: &'a BuildSpec,
    context: Context,
    platform: Platform,
    /// The states at the ends of stages that are done.
    ends: Vec<Option<State<'a>>>,
    number: usize,
    total: usize,
    n_cached: usize,
    warnings: Vec<String>,
}

pub(super) async fn build(
    builder: &Arc<Builder>,
    spec: BuildSpec,
    context: ByteStream,
) -> Result<BuiltImage> {
    let core = builder.engine.core();
    let images = core.images_to_name(&builder.who).await?.clone();
    let platform = platform(spec.platform.clone())?;
    let mut context = builder.read_context(context).await?;
    let dockerfile = Dockerfile::parse(&dockerfile(&context, &spec.dockerfile)?).map_err(from_build)?;
    may_block(|| leave_out(&mut context, &|| builder.still_wanted()))?;
    let target = Target {
        os: platform.os.clone(),
        architecture: platform.architecture.clone(),
        variant: platform.variant.clone(),
    };
    let plan = dockerfile.plan(&spec.args, spec.target.as_deref(), &target).map_err(from_build)?;
    let warnings: Vec<String> = dockerfile.warnings.iter().chain(&plan.warnings).cloned().collect();
    for message in &warnings {
        builder.tell(BuildEvent::Warning { message: message.clone() }).await;
    }
    let needed = plan.stages.iter().zip(&plan.needed).filter(|(_, is_needed)| **is_needed);
    let total: usize = needed.map(|(stage, _)| stage.instructions.len() + 1).sum();
    if total > MAX_STEPS {
        let message = format!("the build has {total} steps; the limit is {MAX_STEPS}");
        return Err(Error::new(ErrorKind::LimitReached, message)
            .with_hint("Combine instructions, or build in parts."));
    }
    let mut walk = Walk {
        builder,
        images,
        plan: &plan,
        spec: &spec,
        context,
        platform,
        ends: vec![None; plan.stages.len()],
        number: 0,
        total,
        n_cached: 0,
        warnings,
    };
    for (index, stage) in plan.stages.iter().enumerate().filter(|(index, _)| plan.needed[*index]) {
        let end = walk.stage(index, stage).await?;
        walk.ends[index] = Some(end);
    }
    walk.finish().await
}

/// Sandboxes run on the machine's own processor.
fn platform(asked: Option<Platform>) -> Result<Platform> {
    let host = Platform::host();
    match asked {
        None => Ok(host),
        Some(asked) if asked.os == host.os && asked.architecture == host.architecture => Ok(asked),
        Some(asked) => {
            let message = format!("this machine is {host} and cannot build for {asked}");
            Err(Error::new(ErrorKind::Unsupported, message).with_hint("Build on a machine of that kind."))
        }
    }
}

fn dockerfile(context: &Context, source: &DockerfileSource) -> Result<Vec<u8>> {
    let path = match source {
        DockerfileSource::Text(text) => return Ok(text.clone().into_bytes()),
        DockerfileSource::Path(path) => path,
    };
    let found = context.read_file(path, ::build::MAX_DOCKERFILE_BYTES as u64)?;
    found.ok_or_else(|| {
        Error::not_found(format!("the build context has no {path}"))
            .with_hint("Give the path of the Dockerfile, relative to the context.")
    })
}

/// Removes from the context what `.dockerignore` names, so that `COPY` does not see it, whoever packed the context.
fn leave_out(context: &mut Context, wanted: &dyn Fn() -> Result<()>) -> Result<()> {
    context.remove(OUTSIDE_DOCKERFILE);
    let Some(bytes) = context.read_file(".dockerignore", MAX_IGNORE_BYTES)? else { return Ok(()) };
    let ignore = Ignore::parse(&String::from_utf8_lossy(&bytes)).map_err(Error::invalid)?;
    context.retain(wanted, |name| !ignore.excludes(name))
}

fn from_build(error: ::build::Error) -> Error {
    Error::invalid(format!("Dockerfile, {error}")).with_hint("Correct the Dockerfile and build again.")
}

/// An error of one instruction, with its line.
fn at(located: &Located, error: Error) -> Error {
    let text: String = located.text.chars().take(200).collect();
    error.reworded(|words| format!("Dockerfile, line {}: {text}: {words}", located.line))
}

impl<'a> Walk<'a> {
    async fn stage(&mut self, index: usize, stage: &'a Stage) -> Result<State<'a>> {
        self.step(stage, stage.line, &stage.text).await;
        let mut state = self.begin(index, stage).await?;
        for located in &stage.instructions {
            self.step(stage, located.line, &located.text).await;
            let step = state.scope.step(located).map_err(from_build)?;
            self.perform(&mut state, located, step).await.map_err(|error| at(located, error))?;
        }
        Ok(state)
    }

    async fn step(&mut self, stage: &Stage, line: usize, text: &str) {
        self.number += 1;
        let (number, total, stage, text) = (self.number, self.total, stage.name.clone(), text.to_owned());
        self.builder.tell(BuildEvent::Step { number, total, stage, line, text }).await;
    }

    async fn warn(&mut self, located: &Located, note: &str) {
        let message = format!("line {}: {note}", located.line);
        self.warnings.push(message.clone());
        self.builder.tell(BuildEvent::Warning { message }).await;
    }

    async fn begin(&mut self, index: usize, stage: &'a Stage) -> Result<State<'a>> {
        if let Some(text) = &stage.platform {
            platform(Some(text.parse().map_err(from_images)?))?;
        }
        match &stage.base {
            Base::Scratch => Ok(State {
                image: None,
                origin: Origin::default(),
                scope: Scope::on_image(self.plan, index, Config::default()),
            }),
            Base::Stage(other) => {
                let missing =
                    || Error::new(ErrorKind::Internal, "a stage precedes the stage that it is based on");
                let end = self.ends.get(*other).and_then(Option::as_ref).ok_or_else(missing)?;
                Ok(State {
                    image: end.image.clone(),
                    origin: end.origin.clone(),
                    scope: Scope::on_stage(self.plan, index, &end.scope),
                })
            }
            Base::Image(name) => {
                let image = self.find_image(name).await?;
                let origin = self.images.origin(&image).await.map_err(from_images)?;
                let scope = Scope::on_image(self.plan, index, config_of(&image.config));
                Ok(State { image: Some(image), origin, scope })
            }
        }
    }

    async fn find_image(&self, name: &str) -> Result<Image> {
        if name == sandbox::ImageRef::HOST {
            let message = "cannot build on the image host, which is this machine's own files";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("Use FROM with another image."));
        }
        if self.spec.pull != PullPolicy::Always {
            match self.images.get(name).await {
                Err(::images::Error::NotFound { .. }) if self.spec.pull == PullPolicy::IfMissing => {}
                found => return found.map_err(from_images),
            }
        }
        let reference: Reference = name.parse().map_err(from_images)?;
        let reach = self.builder.who.reach();
        let platform = Some(self.platform.clone());
        let options = PullOptions { platform, reach, ..PullOptions::default() };
        self.builder.tell(BuildEvent::Pull { reference: reference.to_string() }).await;
        self.images.pull(&reference, options, self.builder.pulls.clone()).await.map_err(from_images)
    }

    async fn perform(&mut self, state: &mut State<'a>, located: &Located, step: Step) -> Result<()> {
        match step {
            Step::Config => state.origin.history.push(History {
                created: state.origin.created.clone(),
                created_by: Some(located.text.clone()),
                comment: None,
                empty_layer: true,
            }),
            Step::Run(run) => self.run(state, located, &run).await?,
            Step::Workdir(path) => self.workdir(state, located, &path).await?,
            Step::Copy(copy) => self.copy(state, located, &copy).await?,
        }
        Ok(())
    }

    /// The image that a sandbox of this stage is made from.
    async fn ground(&self, state: &State<'a>) -> Result<Image> {
        match &state.image {
            Some(image) => Ok(image.clone()),
            None => {
                // Nothing at all cannot be mounted; a layer with nothing in it can.
                let layer = Box::new(&EMPTY_TAR[..]);
                let commit = self.commit_of(&Config::default(), Origin::default());
                self.images.commit(None, Some(layer), commit).await.map_err(from_images)
            }
        }
    }

    fn commit_of(&self, config: &Config, origin: Origin) -> Commit {
        Commit {
            config: image_config(config),
            platform: self.platform.clone(),
            origin,
            names: Vec::new(),
            build_key: None,
        }
    }

    /// Takes the layer of an earlier build; `false` when there is none.
    async fn reuse(&mut self, state: &mut State<'a>, key: &Digest) -> Result<bool> {
        if self.spec.no_cache {
            return Ok(false);
        }
        let Some(image) = self.images.built(key).await.map_err(from_images)? else { return Ok(false) };
        state.origin = self.images.origin(&image).await.map_err(from_images)?;
        state.image = Some(image);
        self.n_cached += 1;
        self.builder.tell(BuildEvent::Cached { number: self.number }).await;
        Ok(true)
    }

    /// Makes the image with what the sandbox changed.
    async fn keep(
        &mut self,
        state: &mut State<'a>,
        ground: &Image,
        located: &Located,
        key: Digest,
        layer: Option<File>,
    ) -> Result<()> {
        let mut origin = state.origin.clone();
        let created = Some(self.builder.engine.core().clock.now().to_string());
        origin.history.push(History {
            created: created.clone(),
            created_by: Some(located.text.clone()),
            comment: None,
            empty_layer: layer.is_none(),
        });
        origin.created = created;
        let bytes = layer.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
        let layer = match layer {
            Some(mut file) => {
                may_block(|| file.rewind()).map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "cannot read a layer again").with_source(error)
                })?;
                Some(Box::new(file) as Box<dyn std::io::Read + Send>)
            }
            None => None,
        };
        let commit = Commit { build_key: Some(key), ..self.commit_of(&state.scope.config, origin.clone()) };
        let image = self.images.commit(Some(ground), layer, commit).await.map_err(from_images)?;
        state.image = Some(image);
        state.origin = origin;
        self.builder.tell(BuildEvent::Layer { number: self.number, bytes }).await;
        Ok(())
    }

    async fn run(&mut self, state: &mut State<'a>, located: &Located, step: &RunStep) -> Result<()> {
        let ground = self.ground(state).await?;
        let network = self.network(step);
        let key = keys::of_run(&ground.digest, step, network::is_cut_off(self.builder, &network));
        if self.reuse(state, &key).await? {
            return Ok(());
        }
        let sandbox = InstructionSandbox::make(self.builder, &ground, network.clone()).await?;
        let layer = self.run_in(&sandbox, step, &network).await;
        sandbox.end().await;
        self.keep(state, &ground, located, key, layer?).await
    }

    fn network(&self, step: &RunStep) -> NetworkSpec {
        match step.network {
            Network::Default => self.spec.network.clone(),
            Network::None => NetworkSpec::preset(Preset::None),
        }
    }

    async fn run_in(
        &self,
        sandbox: &InstructionSandbox<'_>,
        step: &RunStep,
        network: &NetworkSpec,
    ) -> Result<Option<File>> {
        let mut env: BTreeMap<_, _> = step.env.iter().chain(&step.proxies).cloned().collect();
        let reach = match network::reaches_packages(network) {
            true => Reach::open(self.builder, sandbox).await?,
            false => None,
        };
        if let Some(reach) = &reach {
            reach.tell(&mut env);
        }
        let left = self.builder.deadline.saturating_duration_since(Instant::now());
        let spec = ExecSpec {
            command: step.command.clone(),
            env,
            cwd: Some(step.workdir.clone()),
            user: Some(step.user.clone().unwrap_or_else(|| ROOT.to_owned())),
            timeout: Some(left.max(Duration::from_millis(1))),
            ..ExecSpec::default()
        };
        let work = sandbox.run(spec);
        let (outcome, cleared) = match reach {
            Some(reach) => reach.during(self.builder, sandbox, work).await,
            None => (work.await, Ok(())),
        };
        match outcome? {
            ExecOutcome::Exited { code: 0, .. } => {
                cleared?;
                sandbox.layer().await
            }
            outcome => Err(Error::invalid(format!("the command failed: {outcome}")).with_hint(
                "Check its output, correct the instruction and build again; earlier layers are kept.",
            )),
        }
    }

    async fn workdir(&mut self, state: &mut State<'a>, located: &Located, path: &str) -> Result<()> {
        let ground = self.ground(state).await?;
        let key = keys::of_workdir(&ground.digest, path);
        if self.reuse(state, &key).await? {
            return Ok(());
        }
        let sandbox = InstructionSandbox::make(self.builder, &ground, NetworkSpec::default()).await?;
        let made = self.builder.engine.mkdir(&self.builder.who, &sandbox.which, path, true, None).await;
        let layer = match made {
            Ok(()) => sandbox.layer().await,
            Err(error) => Err(error),
        };
        sandbox.end().await;
        self.keep(state, &ground, located, key, layer?).await
    }

    async fn copy(&mut self, state: &mut State<'a>, located: &Located, step: &CopyStep) -> Result<()> {
        let ground = self.ground(state).await?;
        let source = match &step.from {
            None => None,
            Some(StageRef::Image(name)) => Some(self.find_image(name).await?),
            Some(StageRef::Stage(index)) => {
                let missing = || Error::new(ErrorKind::Internal, "a stage is copied from before it is built");
                let end = self.ends.get(*index).and_then(Option::as_ref).ok_or_else(missing)?;
                Some(self.ground(end).await?)
            }
        };
        let (load, content) = match &source {
            None => {
                let load = may_block(|| Load::from_context(self.builder, &self.context, step))?;
                let content = load.digest();
                (Some(load), content)
            }
            // All of the image stands for what is copied from it: to know better would take a sandbox.
            Some(image) => (None, image.digest.clone()),
        };
        let key = keys::of_copy(&ground.digest, step, &content);
        if self.reuse(state, &key).await? {
            return Ok(());
        }
        let load = match (load, &source) {
            (Some(load), _) => load,
            (None, Some(image)) => Load::from_image(self.builder, image, step).await?,
            (None, None) => Load::default(),
        };
        for note in &load.notes {
            self.warn(located, note).await;
        }
        let sandbox = InstructionSandbox::make(self.builder, &ground, NetworkSpec::default()).await?;
        let layer = match load.put(self.builder, &sandbox, step).await {
            Ok(()) => sandbox.layer().await,
            Err(error) => Err(error),
        };
        sandbox.end().await;
        self.keep(state, &ground, located, key, layer?).await
    }

    /// The image as it is named.
    async fn finish(mut self) -> Result<BuiltImage> {
        let missing = || Error::new(ErrorKind::Internal, "the last stage was not built");
        let end = self.ends[self.plan.target].take().ok_or_else(missing)?;
        let ground = self.ground(&end).await?;
        let mut commit =
            Commit { names: self.spec.tags.clone(), ..self.commit_of(&end.scope.config, end.origin.clone()) };
        if commit.names.is_empty() {
            // Without a name it would be collected at once; as a build's it stays until room is needed.
            let key = format!("built {}", ground.digest);
            commit.build_key = Some(Digest::of(key.as_bytes()));
        }
        // Not as the image has them: whoever built the same name at the same time may have it by now.
        let mut names = self.spec.tags.clone();
        names.sort();
        names.dedup();
        let image = self.images.commit(Some(&ground), None, commit).await.map_err(from_images)?;
        Ok(BuiltImage {
            digest: image.digest.clone(),
            names,
            n_steps: self.total,
            n_cached: self.n_cached,
            warnings: self.warnings,
        })
    }
}

fn config_of(config: &ImageConfig) -> Config {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (text.clone(), String::new()),
    };
    Config {
        env: config.env.iter().map(pair).collect(),
        user: config.user.clone(),
        workdir: config.working_dir.clone(),
        entrypoint: config.entrypoint.clone(),
        cmd: config.cmd.clone(),
        ports: config.exposed_ports.clone(),
        volumes: config.volumes.clone(),
        stop_signal: config.stop_signal.clone(),
        shell: config.shell.clone(),
        labels: config.labels.clone(),
    }
}

fn image_config(config: &Config) -> ImageConfig {
    ImageConfig {
        env: config.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        user: config.user.clone(),
        working_dir: config.workdir.clone(),
        entrypoint: config.entrypoint.clone(),
        cmd: config.cmd.clone(),
        exposed_ports: config.ports.clone(),
        volumes: config.volumes.clone(),
        stop_signal: config.stop_signal.clone(),
        shell: config.shell.clone(),
        labels: config.labels.clone(),
    }
}
