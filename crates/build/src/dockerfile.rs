//! A whole Dockerfile: its stages, and which of them a target needs.

use std::collections::BTreeMap;

use crate::{
    error::{Error, Result},
    expand,
    instruction::{self, Instruction},
    lines,
    options::{BuildArgs, Target},
};

/// Most stages of one Dockerfile.
const MAX_STAGES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub line: usize,
    pub instruction: Instruction,
    /// As written, on one line.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    pub(crate) escape: char,
    /// Before the first `FROM`.
    args: Vec<Located>,
    stages: Vec<(Located, Vec<Located>)>,
    /// Warnings about what is odd or left out, as sentences with their lines.
    pub warnings: Vec<String>,
}

/// The beginning of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    Image(String),
    /// An earlier stage, by its place in [`Plan::stages`].
    Stage(usize),
    /// Nothing.
    Scratch,
}

/// Where `COPY --from` takes files from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageRef {
    Stage(usize),
    Image(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub line: usize,
    pub name: Option<String>,
    pub base: Base,
    pub platform: Option<String>,
    pub text: String,
    pub instructions: Vec<Located>,
}

/// The stages to build, all variables of `FROM` lines replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All of the Dockerfile up to the target, in its order.
    pub stages: Vec<Stage>,
    /// Which of them the target needs, itself included.
    pub needed: Vec<bool>,
    pub target: usize,
    pub(crate) escape: char,
    /// Arguments from before the first `FROM`, and predefined ones, with their values.
    pub(crate) global_args: BTreeMap<String, String>,
    pub(crate) given: BuildArgs,
    pub warnings: Vec<String>,
}

impl Dockerfile {
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let read = lines::read(bytes)?;
        let mut file =
            Self { escape: read.escape, args: Vec::new(), stages: Vec::new(), warnings: read.warnings };
        for line in &read.lines {
            let instruction = instruction::parse(line, read.escape)?;
            let text = format!("{} {}", line.keyword, line.rest);
            let located = Located { line: line.number, instruction, text };
            match (&located.instruction, file.stages.last_mut()) {
                (Instruction::From { .. }, _) => file.stages.push((located, Vec::new())),
                (Instruction::Ignored { warning }, _) => file.warnings.push(warning.clone()),
                (_, Some((_, stage))) => stage.push(located),
                (Instruction::Arg(_), None) => file.args.push(located),
                (_, None) => {
                    let message = format!("{} before the first FROM; expected FROM or ARG", line.keyword);
                    return Err(Error::new(line.number, message));
                }
            }
        }
        if file.stages.is_empty() {
            return Err(Error::new(1, "the Dockerfile has no FROM; expected FROM image"));
        }
        if let Some((from, _)) = file.stages.get(MAX_STAGES) {
            return Err(Error::new(from.line, format!("more than {MAX_STAGES} stages")));
        }
        Ok(file)
    }

    /// Decides what is to be built. `target` is the name or number of a stage; the last one when absent.
    pub fn plan(&self, given: &BuildArgs, target: Option<&str>, platform: &Target) -> Result<Plan> {
        let global_args = self.global_args(given, platform)?;
        let mut stages: Vec<Stage> = Vec::new();
        let lookup = |name: &str| global_args.get(name).cloned();
        for (from, instructions) in &self.stages {
            let Instruction::From { image, platform, name } = &from.instruction else { continue };
            let expanded = |text: &str| {
                expand::word(text, self.escape, &lookup).map_err(|message| Error::new(from.line, message))
            };
            let image = expanded(image)?;
            if image.is_empty() {
                let message = format!("{} names no image once its variables are replaced", from.text);
                return Err(Error::new(from.line, message));
            }
            let base = match find(&stages, &image) {
                Some(stage) => Base::Stage(stage),
                None if image == "scratch" => Base::Scratch,
                None => Base::Image(image),
            };
            let platform = platform.as_deref().map(expanded).transpose()?.filter(|text| !text.is_empty());
            stages.push(Stage {
                line: from.line,
                name: name.clone(),
                base,
                platform,
                text: from.text.clone(),
                instructions: instructions.clone(),
            });
        }
        let target = self.target(&stages, target)?;
        stages.truncate(target + 1);
        let warnings = unused(given, &self.args, &stages);
        let mut plan = Plan {
            needed: vec![false; stages.len()],
            stages,
            target,
            escape: self.escape,
            global_args,
            given: given.clone(),
            warnings,
        };
        plan.need(target);
        Ok(plan)
    }

    fn global_args(&self, given: &BuildArgs, platform: &Target) -> Result<BTreeMap<String, String>> {
        let mut args = platform.predefined();
        for (name, value) in given {
            if args.contains_key(name) {
                args.insert(name.clone(), value.clone());
            }
        }
        let mut room = expand::Room::new();
        for located in &self.args {
            let Instruction::Arg(list) = &located.instruction else { continue };
            for (name, default) in list {
                let lookup = |name: &str| args.get(name).cloned();
                let value = match (given.get(name), default) {
                    (Some(given), _) => Some(given.clone()),
                    (None, Some(default)) => Some(
                        expand::word(default, self.escape, &lookup)
                            .map_err(|message| Error::new(located.line, message))?,
                    ),
                    (None, None) => None,
                };
                if let Some(value) = value {
                    room.take(name, &value).map_err(|message| Error::new(located.line, message))?;
                    args.insert(name.clone(), value);
                }
            }
        }
        Ok(args)
    }

    fn target(&self, stages: &[Stage], target: Option<&str>) -> Result<usize> {
        let Some(target) = target else { return Ok(stages.len() - 1) };
        let by_number = || target.parse().ok().filter(|number| *number < stages.len());
        find(stages, target).or_else(by_number).ok_or_else(|| {
            let names: Vec<_> = stages.iter().filter_map(|stage| stage.name.as_deref()).collect();
            let known = if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") };
            let shown: String = target.chars().take(64).collect();
            Error::new(1, format!("there is no stage {shown:?} to build; expected one of: {known}"))
        })
    }
}

impl Plan {
    /// Finds the stage or image that `--from` stands for in the stage at `index`, its variables replaced.
    pub fn source(&self, index: usize, from: &str) -> StageRef {
        let earlier = &self.stages[..index.min(self.stages.len())];
        let by_number = || from.parse().ok().filter(|number| *number < earlier.len());
        match find(earlier, from).or_else(by_number) {
            Some(stage) => StageRef::Stage(stage),
            None => StageRef::Image(from.to_owned()),
        }
    }

    /// Marks a stage and all that it is made from. `--from` takes variables of the global arguments at most in the
    /// names of stages; one that is known only inside the stage makes every earlier stage needed.
    fn need(&mut self, index: usize) {
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut self.needed[index], true) {
                continue;
            }
            if let Base::Stage(stage) = self.stages[index].base {
                open.push(stage);
            }
            for located in &self.stages[index].instructions {
                let Instruction::Copy(copy) = &located.instruction else { continue };
                match copy.from.as_deref() {
                    Some(from) if from.contains('$') => open.extend(0..index),
                    Some(from) => {
                        if let StageRef::Stage(stage) = self.source(index, from) {
                            open.push(stage);
                        }
                    }
                    None => {}
                }
            }
        }
    }
}

/// A stage by its name; a later one of the same name wins.
fn find(stages: &[Stage], name: &str) -> Option<usize> {
    stages.iter().rposition(|stage| stage.name.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name)))
}

/// Arguments that no `ARG` of the stages takes.
fn unused(given: &BuildArgs, before: &[Located], stages: &[Stage]) -> Vec<String> {
    let all = before.iter().chain(stages.iter().flat_map(|stage| &stage.instructions));
    let declared: Vec<&str> = all
        .filter_map(|located| match &located.instruction {
            Instruction::Arg(list) => Some(list.iter().map(|(name, _)| name.as_str())),
            _ => None,
        })
        .flatten()
        .collect();
    let is_known = |name: &str| declared.contains(&name) || crate::options::is_proxy(name);
    let names: Vec<_> = given.keys().filter(|name| !is_known(name)).map(String::as_str).collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![format!("no ARG takes these build arguments: {}", names.join(", "))]
}
