//! A project: the sandboxes of one Sandboxfile, with their specs, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sandbox::{Error, ErrorKind, Language, Namespace, Result, SandboxName, SandboxSpec, SecretName};
use sha2::{Digest as _, Sha256};

use super::{
    CONFIG_LABEL, DIRECTORY_LABEL, FileArgs, MEMBER_LABEL, PROJECT_LABEL,
    file::{self, Source},
    member::{Meaning, Reader},
    order::{self, Circle},
    paths::HostPaths,
};

/// Sandboxes of one file.
const MAX_SANDBOXES: usize = 256;
/// The longest name of a sandbox, which holds the names of the project and of the member.
const MAX_NAME_BYTES: usize = 63;

#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) name: SandboxName,
    pub(crate) namespace: Namespace,
    /// A digest of its directory, unless the user chose the project's name.
    pub(super) directory: Option<String>,
    /// Every one after those that it depends on.
    pub(crate) members: Vec<Member>,
    pub(crate) warnings: Vec<String>,
    depends_on: BTreeMap<String, Vec<String>>,
}

/// One sandbox of a project.
#[derive(Debug)]
pub(crate) struct Member {
    /// As the file calls it.
    pub(crate) name: String,
    /// With its name, labels and namespace.
    pub(crate) spec: SandboxSpec,
    /// The image that stands for an interpreter, which must be there.
    pub(super) language: Option<(String, Language)>,
}

impl Project {
    /// Reads the file. Nothing is asked of the daemon.
    pub(crate) fn read(args: &FileArgs, namespace: Namespace) -> Result<Self> {
        let source = Source::read(args.file.as_deref())?;
        let paths = HostPaths::new(&source.directory, &args.allowed)?;
        let name = match &args.project {
            Some(name) => name.clone(),
            None => name_of(&source.directory)?,
        };
        let directory =
            args.project.is_none().then(|| digest(source.directory.as_os_str().as_encoded_bytes()));
        let mut project = Self {
            name,
            namespace,
            directory,
            members: Vec::new(),
            warnings: Vec::new(),
            depends_on: BTreeMap::new(),
        };
        project.take(&source, &paths, &args.secrets)?;
        Ok(project)
    }

    fn take(&mut self, source: &Source, paths: &HostPaths, secrets: &[SecretName]) -> Result<()> {
        let file = source.parse()?;
        for (key, is_there) in [
            ("modules", file.modules.as_ref().is_some_and(|modules| !modules.is_empty())),
            ("builds", file.builds.as_ref().is_some_and(|builds| !builds.is_empty())),
        ] {
            if is_there {
                self.warnings.push(format!("{key:?} has no effect, as in microsandbox; see `warren build`"));
            }
        }
        let entries = file.sandboxes.unwrap_or_default();
        if entries.len() > MAX_SANDBOXES {
            let message =
                format!("{}: more than {MAX_SANDBOXES} sandboxes in one file", source.path.display());
            return Err(Error::invalid(message).with_hint("Split it into several projects."));
        }
        let mut members = BTreeMap::new();
        for (name, entry) in &entries {
            let reader = Reader { source, paths, secrets, name, at: entry.referenced };
            let full = self.full_name(name).map_err(|error| source.wrong(entry.referenced, error))?;
            let Meaning { spec, language, warnings } = reader.read(&entry.value)?;
            self.warnings.extend(warnings);
            let mut others = Vec::new();
            for other in entry.value.depends_on.iter().flatten() {
                if !entries.contains_key(&other.value) {
                    let words =
                        format!("sandbox {name:?}, depends_on: there is no sandbox {:?}", other.value);
                    return Err(source.wrong(other.referenced, words));
                }
                others.push(other.value.clone());
            }
            self.depends_on.insert(name.clone(), others);
            let spec = self.labelled(name, SandboxSpec { name: Some(full), ..spec });
            members.insert(name.clone(), Member { name: name.clone(), spec, language });
        }
        let ordered = order::order(&self.depends_on).map_err(|Circle(names)| {
            let way = names.join(" → ");
            Error::invalid(format!("{}: depends_on goes in a circle: {way}", source.path.display()))
                .with_hint("Remove one of these dependencies.")
        })?;
        self.members = ordered.iter().filter_map(|name| members.remove(name)).collect();
        Ok(())
    }

    /// The name of the sandbox: the project's and the member's.
    pub(crate) fn full_name(&self, member: &str) -> Result<SandboxName> {
        // Checked by itself first, so that the error is about what the file says.
        let _own: SandboxName = member.parse()?;
        let full = format!("{}-{member}", self.name);
        if full.len() > MAX_NAME_BYTES {
            let message = format!("the sandbox's name {full:?} is longer than {MAX_NAME_BYTES} bytes");
            return Err(Error::invalid(message).with_hint("Choose a shorter project name with --project."));
        }
        Ok(full.parse()?)
    }

    fn labelled(&self, name: &str, mut spec: SandboxSpec) -> SandboxSpec {
        let config = serde_json::to_vec(&spec).unwrap_or_default();
        let labels = [
            (PROJECT_LABEL, self.name.to_string()),
            (MEMBER_LABEL, name.to_owned()),
            (CONFIG_LABEL, format!("v1.{}", digest(&config))),
        ];
        spec.labels.extend(labels.map(|(key, value)| (key.to_owned(), value)));
        spec.labels.extend(self.directory.clone().map(|digest| (DIRECTORY_LABEL.to_owned(), digest)));
        spec.namespace = self.namespace.clone();
        spec
    }

    /// The names that were asked for, which the file must have; all of them if none was.
    pub(crate) fn chosen(&self, names: &[String]) -> Result<BTreeSet<String>> {
        if names.is_empty() {
            return Ok(self.depends_on.keys().cloned().collect());
        }
        match names.iter().find(|name| !self.depends_on.contains_key(*name)) {
            Some(unknown) => Err(self.no_member(unknown)),
            None => Ok(names.iter().cloned().collect()),
        }
    }

    /// The same, with everything that they depend on.
    pub(crate) fn chosen_with_dependencies(&self, names: &[String]) -> Result<BTreeSet<String>> {
        let chosen: Vec<_> = self.chosen(names)?.into_iter().collect();
        Ok(order::with_dependencies(&self.depends_on, &chosen))
    }

    fn no_member(&self, name: &str) -> Error {
        let known: Vec<_> = self.depends_on.keys().map(String::as_str).collect();
        let message = format!("project {} has no sandbox {name:?}", self.name);
        let hint = match known.is_empty() {
            true => "Its Sandboxfile has no sandboxes.".to_owned(),
            false => format!("Its sandboxes are {}.", known.join(", ")),
        };
        Error::new(ErrorKind::NotFound, message).with_hint(hint)
    }
}

/// The project's name, where only that is wanted: the file itself is not read.
pub(crate) fn project_name(args: &FileArgs) -> Result<SandboxName> {
    if let Some(name) = &args.project {
        return Ok(name.clone());
    }
    let path = file::find(args.file.as_deref());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = directory.canonicalize().map_err(|error| {
        Error::new(ErrorKind::NotFound, format!("cannot use {}: {error}", directory.display()))
    })?;
    name_of(&directory)
}

/// The directory's name, with what a name may not have replaced.
fn name_of(directory: &Path) -> Result<SandboxName> {
    let text = directory.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let text: String = text.to_lowercase().chars().map(plain).collect();
    text.trim_matches(['-', '_']).parse().map_err(|_unfit| {
        Error::invalid(format!("{} gives no name for the project", directory.display()))
            .with_hint("Choose one with --project NAME.")
    })
}

fn digest(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))
}
