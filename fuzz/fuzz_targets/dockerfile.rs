//! Dockerfiles and ignore files, down to the steps of every stage.
#![no_main]

use build::{Base, BuildArgs, Config, Dockerfile, Ignore, Pattern, Scope, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(ignore) = Ignore::parse(text) {
            ignore.excludes("a/b/c.txt");
        }
        if let Ok(pattern) = Pattern::parse(text) {
            pattern.matches("a/b/c.txt");
        }
    }
    let Ok(file) = Dockerfile::parse(bytes) else { return };
    let target = Target { os: "linux".to_owned(), architecture: "amd64".to_owned(), variant: None };
    let Ok(plan) = file.plan(&BuildArgs::new(), None, &target) else { return };
    let mut ends: Vec<Option<Scope<'_>>> = Vec::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        let mut scope = match &stage.base {
            Base::Stage(earlier) => match ends.get(*earlier).and_then(Option::as_ref) {
                Some(end) => Scope::on_stage(&plan, index, end),
                None => return,
            },
            _ => Scope::on_image(&plan, index, Config::default()),
        };
        let done = stage.instructions.iter().try_for_each(|located| scope.step(located).map(drop));
        ends.push(done.is_ok().then_some(scope));
    }
});
