//! Whole Dockerfiles: what they come to, and what is refused.
#![expect(clippy::unwrap_used, reason = "what a test cannot do, it reports by panicking")]

use build::{
    Base, BuildArgs, Config, CopyStep, Dockerfile, Network, Plan, RunStep, Scope, StageRef, Step, Target,
};
use proptest::prelude::*;

fn target() -> Target {
    Target { os: "linux".into(), architecture: "amd64".into(), variant: None }
}

fn args(pairs: &[(&str, &str)]) -> BuildArgs {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn plan_with(text: &str, given: &[(&str, &str)]) -> Plan {
    Dockerfile::parse(text.as_bytes()).unwrap().plan(&args(given), None, &target()).unwrap()
}

/// The steps of the last stage, made on an image with a little configuration, and what it says in the end.
fn walk_with(text: &str, given: &[(&str, &str)]) -> (Vec<Step>, Config) {
    let plan = plan_with(text, given);
    let env = vec![("PATH".to_owned(), "/bin".to_owned())];
    let base = Config { env, cmd: vec!["base".to_owned()], ..Config::default() };
    let mut scope = Scope::on_image(&plan, plan.target, base);
    let steps = plan.stages[plan.target].instructions.iter().map(|located| scope.step(located).unwrap());
    let steps = steps.collect();
    (steps, scope.config)
}

fn walk(text: &str) -> (Vec<Step>, Config) {
    walk_with(text, &[])
}

fn run(step: &Step) -> &RunStep {
    match step {
        Step::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn copy(step: &Step) -> &CopyStep {
    match step {
        Step::Copy(copy) => copy,
        other => panic!("{other:?}"),
    }
}

/// The message with its line, wherever it comes from.
fn refusal(text: &str) -> String {
    let refused = Dockerfile::parse(text.as_bytes()).and_then(|file| {
        let plan = file.plan(&BuildArgs::new(), None, &target())?;
        let mut scope = Scope::on_image(&plan, plan.target, Config::default());
        plan.stages[plan.target].instructions.iter().try_for_each(|located| scope.step(located).map(drop))
    });
    match refused {
        Ok(()) => panic!("{text:?} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn commands_take_both_forms_and_the_shell_that_was_set() {
    let (steps, config) = walk(
        "FROM a\nRUN echo $HOME \\\n  && true\nRUN [\"/bin/echo\", \"a b\"]\nRUN ['not', json]\nSHELL [\"/bin/ash\", \"-ec\"]\nRUN x\nCMD y\nENTRYPOINT [\"e\"]",
    );
    assert_eq!(run(&steps[0]).command, ["/bin/sh", "-c", "echo $HOME   && true"]);
    assert_eq!(run(&steps[1]).command, ["/bin/echo", "a b"]);
    assert_eq!(run(&steps[2]).command, ["/bin/sh", "-c", "['not', json]"]);
    assert_eq!(run(&steps[4]).command, ["/bin/ash", "-ec", "x"]);
    assert_eq!(
        (config.cmd, config.entrypoint),
        (vec!["/bin/ash".into(), "-ec".into(), "y".into()], vec!["e".into()])
    );
}

#[test]
fn an_entry_point_forgets_the_command_of_the_base_only() {
    assert!(walk("FROM a\nENTRYPOINT [\"e\"]").1.cmd.is_empty());
    assert_eq!(walk("FROM a\nCMD [\"c\"]\nENTRYPOINT [\"e\"]").1.cmd, ["c"]);
    assert_eq!(walk("FROM a").1.cmd, ["base"]);
}

#[test]
fn variables_have_the_values_from_before_the_instruction() {
    let (_, config) = walk("FROM a\nENV abc=hello\nENV abc=bye def=$abc\nENV ghi=$abc");
    let value = |name: &str| config.env.iter().find(|(own, _)| own == name).unwrap().1.clone();
    assert_eq!((value("abc"), value("def"), value("ghi")), ("bye".into(), "hello".into(), "bye".into()));
}

#[test]
fn env_and_label_take_both_forms() {
    let (_, config) = walk(
        "FROM a\nENV MY_NAME=\"John Doe\" MY_DOG=Rex\\ The\\ Dog MY_CAT=fluffy\nENV ONE TWO= THREE=world\nENV P=$PATH:/x\nLABEL \"com.example\"=\"A b\" v=1 multi=\"x\\\n y\"",
    );
    let text = format!("{:?}", config.env);
    for part in [
        "(\"MY_NAME\", \"John Doe\")",
        "(\"MY_DOG\", \"Rex The Dog\")",
        "(\"ONE\", \"TWO= THREE=world\")",
        "(\"P\", \"/bin:/x\")",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(config.labels["com.example"], "A b");
    assert_eq!(config.labels["multi"], "x y");
}

#[test]
fn arguments_reach_run_and_env_wins_over_them() {
    let text = "ARG V=1\nFROM a\nARG V\nARG W=w-$V\nARG NONE\nARG E=arg\nENV E=env\nRUN x";
    let (steps, _) = walk(text);
    let env = &run(steps.last().unwrap()).env;
    let value = |env: &[(String, String)], name: &str| {
        env.iter().find(|(own, _)| own == name).map(|(_, v)| v.clone())
    };
    assert_eq!(value(env, "V").as_deref(), Some("1"));
    assert_eq!(value(env, "W").as_deref(), Some("w-1"));
    assert_eq!(value(env, "NONE"), None);
    assert_eq!(value(env, "E").as_deref(), Some("env"));
    let (steps, _) = walk_with(text, &[("V", "2"), ("NONE", "n"), ("http_proxy", "p")]);
    let step = run(steps.last().unwrap());
    assert_eq!(
        (value(&step.env, "W").as_deref(), value(&step.env, "NONE").as_deref()),
        (Some("w-2"), Some("n"))
    );
    assert_eq!(step.proxies, [("http_proxy".to_owned(), "p".to_owned())]);
    // Outside of the stage that declares it an argument does not exist.
    let (steps, _) = walk("ARG V=1\nFROM a\nRUN x");
    assert_eq!(value(&run(&steps[0]).env, "V"), None);
}

#[test]
fn platforms_are_arguments_once_they_are_declared() {
    let (steps, config) =
        walk("FROM --platform=$BUILDPLATFORM a\nARG TARGETARCH\nENV A=$TARGETARCH B=$TARGETOS\nRUN x");
    assert!(config.env.contains(&("A".to_owned(), "amd64".to_owned())));
    assert!(config.env.contains(&("B".to_owned(), String::new())));
    assert!(run(&steps[2]).env.contains(&("TARGETARCH".to_owned(), "amd64".to_owned())));
    let plan = plan_with("FROM --platform=$TARGETPLATFORM a", &[]);
    assert_eq!(plan.stages[0].platform.as_deref(), Some("linux/amd64"));
}

#[test]
fn working_directories_add_up() {
    let (steps, config) =
        walk("FROM a\nWORKDIR /a\nWORKDIR b\nWORKDIR ../c\nENV D=/d\nWORKDIR $D/e\nRUN x\nCOPY f g");
    assert_eq!(steps[..3], ["/a", "/a/b", "/a/c"].map(|path| Step::Workdir(path.to_owned())));
    assert_eq!((run(&steps[5]).workdir.as_str(), config.workdir.as_deref()), ("/d/e", Some("/d/e")));
    assert_eq!(copy(&steps[6]).to, "/d/e/g");
}

#[test]
fn copies_say_what_goes_where() {
    let (steps, _) = walk(
        "FROM a AS one\nFROM b\nCOPY --from=one --chown=1:2 --chmod=0755 /x /y/\nCOPY --from=0 /x .\nCOPY --from=busybox:1 /bin/sh /sh\nCOPY [\"a b\", \"c'd\", \"/t/\"]\nADD a.tar \"/o p\"\nCOPY <<EOF <<'RAW' /d/\n$PATH\nEOF\n$PATH\nRAW\nCOPY --link a* b? ./",
    );
    let first = copy(&steps[0]);
    assert_eq!(
        (first.from.clone(), first.chown.as_deref(), first.chmod),
        (Some(StageRef::Stage(0)), Some("1:2"), Some(0o755))
    );
    assert_eq!((copy(&steps[1]).from.clone(), copy(&steps[1]).to.as_str()), (Some(StageRef::Stage(0)), "/"));
    assert_eq!(copy(&steps[2]).from, Some(StageRef::Image("busybox:1".into())));
    assert_eq!(
        (copy(&steps[3]).sources.clone(), copy(&steps[3]).to.as_str()),
        (vec!["a b".into(), "c'd".into()], "/t/")
    );
    assert_eq!((copy(&steps[4]).unpack, copy(&steps[4]).to.as_str()), (true, "/o p"));
    assert_eq!(
        copy(&steps[5]).files,
        [("EOF".to_owned(), "/bin\n".to_owned()), ("RAW".to_owned(), "$PATH\n".to_owned())]
    );
    assert_eq!(copy(&steps[6]).sources, ["a*", "b?"]);
}

#[test]
fn here_documents_are_scripts_for_the_shell() {
    let (steps, _) = walk("FROM a\nRUN <<EOF\necho 1\necho $x\nEOF\nRUN cat <<A > /f && cat <<B\na\nA\nb\nB");
    assert_eq!(run(&steps[0]).command[2], "echo 1\necho $x\n");
    assert_eq!(run(&steps[1]).command[2], "cat <<A > /f && cat <<B\na\nA\nb\nB");
}

#[test]
fn a_command_can_be_kept_from_the_network() {
    let (steps, _) = walk("FROM a\nRUN x\nRUN --network=none x\nRUN --network=default x");
    let networks: Vec<_> = steps.iter().map(|step| run(step).network).collect();
    assert_eq!(networks, [Network::Default, Network::None, Network::Default]);
}

#[test]
fn ports_and_volumes_are_kept_once() {
    let (_, config) = walk(
        "FROM a\nEXPOSE 80 53/UDP 8000-8002\nEXPOSE 80/tcp\nVOLUME [\"/a\", \"/b\"]\nVOLUME /b /c\nSTOPSIGNAL SIGINT\nUSER u:g",
    );
    assert_eq!(config.ports, ["80/tcp", "53/udp", "8000/tcp", "8001/tcp", "8002/tcp"]);
    assert_eq!(config.volumes, ["/a", "/b", "/c"]);
    assert_eq!((config.stop_signal.as_deref(), config.user.as_deref()), (Some("SIGINT"), Some("u:g")));
}

#[test]
fn only_stages_that_the_target_needs_are_built() {
    let text = "ARG base=alpine\nFROM $base:3 AS Base\nFROM base AS build\nFROM scratch AS odd\nFROM build AS test\nFROM scratch\nCOPY --from=BUILD /x /";
    let plan = plan_with(text, &[("base", "debian"), ("odd", "1")]);
    assert_eq!(plan.stages[0].base, Base::Image("debian:3".into()));
    assert_eq!((&plan.stages[1].base, &plan.stages[4].base), (&Base::Stage(0), &Base::Scratch));
    assert_eq!(plan.needed, [true, true, false, false, true]);
    assert_eq!(plan.warnings, ["no ARG takes these build arguments: odd"]);
    let file = Dockerfile::parse(text.as_bytes()).unwrap();
    let of = |name| file.plan(&BuildArgs::new(), Some(name), &target());
    assert_eq!(of("Test").unwrap().needed, [true, true, false, true]);
    assert_eq!(of("1").unwrap().target, 1);
    assert!(of("other").unwrap_err().message.contains("base, build, odd, test"));
}

#[test]
fn a_stage_on_a_stage_goes_on_where_that_ended() {
    let plan = plan_with("FROM a AS one\nARG V=1\nENV E=$V\nWORKDIR /w\nFROM one\nRUN x", &[]);
    let mut first = Scope::on_image(&plan, 0, Config::default());
    for located in &plan.stages[0].instructions {
        first.step(located).unwrap();
    }
    let mut second = Scope::on_stage(&plan, 1, &first);
    let Step::Run(run) = second.step(&plan.stages[1].instructions[0]).unwrap() else { panic!() };
    assert_eq!(run.env, [("E".to_owned(), "1".to_owned()), ("V".to_owned(), "1".to_owned())]);
    assert_eq!(run.workdir, "/w");
}

#[test]
fn what_is_left_out_is_said() {
    let file = Dockerfile::parse(b"FROM a\nMAINTAINER me\nHEALTHCHECK CMD x\nONBUILD RUN y").unwrap();
    let text = file.warnings.join("\n");
    for part in ["line 2: MAINTAINER", "line 3: HEALTHCHECK", "line 4: ONBUILD"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn refusals_name_the_line_and_what_was_expected() {
    for (text, parts) in [
        ("", &["line 1", "FROM image"][..]),
        ("RUN x", &["line 1", "RUN before the first FROM"]),
        ("FROM a\n\nRUNN x", &["line 3", "unknown instruction RUNN", "ADD, ARG"]),
        ("FROM a\nRUN", &["line 2", "a command"]),
        ("FROM a\nRUN []", &["line 2", "a command"]),
        ("FROM", &["line 1", "FROM image [AS name]"]),
        ("FROM a b", &["FROM image [AS name]"]),
        ("FROM a AS 1x", &["cannot name a stage"]),
        ("FROM --link a", &["--link is not supported", "--platform"]),
        ("FROM $nothing", &["names no image"]),
        ("FROM a\nRUN --mount=type=cache,target=/x y", &["line 2", "--mount is not supported"]),
        ("FROM a\nRUN --network=host y", &["none or default"]),
        ("FROM a\nCOPY x", &["line 2", "sources and a destination"]),
        ("FROM a\nCOPY a b c", &["ends with /"]),
        ("FROM a\nCOPY --from= a b", &["--from takes a value"]),
        ("FROM a\nCOPY --parents a b", &["--parents is not supported"]),
        ("FROM a\nADD --from=x a b", &["--from is not supported"]),
        ("FROM a\nCOPY --chmod=u+x a b", &["--chmod takes permission bits"]),
        ("FROM a\nADD https://example.com/x /x", &["no network", "https://example.com/x"]),
        ("FROM a\nARG u=http://e\nADD $u/x /x", &["line 3", "no network"]),
        ("FROM a\nENV a", &["name=value"]),
        ("FROM a\nENV a=b c", &["not \"c\""]),
        ("FROM a\nENV =b", &["name=value"]),
        ("FROM a\nARG 1=b", &["name or name=value"]),
        ("FROM a\nSHELL /bin/sh", &["list in JSON"]),
        ("FROM a\nEXPOSE http", &["EXPOSE takes a port"]),
        ("FROM a\nEXPOSE 1-70000", &["EXPOSE takes a port"]),
        ("FROM a\nEXPOSE 1-600\nEXPOSE 601-1025", &["line 3", "more than 1024 ports"]),
        ("FROM a\nWORKDIR $nothing", &["WORKDIR $nothing is empty"]),
        ("FROM a\nENV a=\"b", &["line 2", "closing \""]),
        ("FROM a\nRUN <<EOF\n#!/bin/python\nEOF", &["line 2", "#!"]),
    ] {
        let message = refusal(text);
        for part in parts {
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}

/// The growth of a few lines has an end, so that no Dockerfile fills the memory or keeps a thread for ever.
#[test]
fn a_small_dockerfile_does_not_become_large() {
    let doubled = format!("{}\n", "ENV b=$b$b\n".repeat(12));
    let many = |form: &str| (0..5000).map(|n| form.replace('#', &n.to_string())).collect::<String>();
    for (text, part) in [
        (format!("FROM a\nENV b=0123456789\n{doubled}ENV{}", many(" v#=$b")), "more than 4096 variables"),
        (format!("FROM a\nENV b=0123456789\n{doubled}{}", many("ENV v#=$b\n")), "more than 1048576 bytes"),
        (format!("FROM a\nENV b=0123456789\n{doubled}LABEL{}", many(" v#=$b")), "more than 1048576 bytes"),
        (format!("FROM a\nENV b=0123456789\n{doubled}ARG{}", many(" v#=$b")), "more than 1048576 bytes"),
        (
            format!("ARG b=0123456789\n{}ARG{}\nFROM a", doubled.replace("ENV", "ARG"), many(" v#=$b")),
            "bytes",
        ),
        (format!("FROM a\nENV b=0123456789\n{doubled}COPY{} /x/", many(" $b")), "more than 1048576 bytes"),
        (format!("FROM a\nVOLUME{}", many(" /#")), "more than 1024 volumes"),
        (format!("FROM a\nEXPOSE{}", many(" 1-1000")), "more than 1024 ports"),
        (format!("FROM a\nCOPY{} /x/\n{}", many(" <<A#"), many("A#\n")), "more than 64 here-documents"),
    ] {
        let text = if text.matches('\n').count() > 1900 {
            text.lines().take(1900).collect::<Vec<_>>().join("\n")
        } else {
            text
        };
        let message = refusal(&text);
        assert!(message.contains(part), "{part}: {message}");
    }
}

fn swallow(bytes: &[u8]) {
    let Ok(file) = Dockerfile::parse(bytes) else { return };
    let Ok(plan) = file.plan(&args(&[("A", "1")]), None, &target()) else { return };
    for (index, stage) in plan.stages.iter().enumerate() {
        let mut scope = Scope::on_image(&plan, index, Config::default());
        for located in &stage.instructions {
            let _refused_or_not = scope.step(located);
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        swallow(&bytes);
        let _refused_or_not = build::Ignore::parse(&String::from_utf8_lossy(&bytes)).map(|ignore| ignore.excludes("a/b"));
    }

    #[test]
    fn nothing_that_looks_like_a_dockerfile_makes_it_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("FROM a"), Just("FROM"), Just(" AS x"), Just("\n"), Just("\\\n"), Just("RUN"), Just(" "), Just("COPY"),
                Just("ADD"), Just("--from=x"), Just("--chown="), Just("<<EOF"), Just("\nEOF\n"), Just("[\"a\"]"), Just("["),
                Just("$A"), Just("${A"), Just(":-"), Just("}"), Just("'"), Just("\""), Just("ENV a=b"), Just("ARG A"), Just("="),
                Just("#"), Just("# escape=`\n"), Just("`"), Just("EXPOSE 1-2"), Just("/"), Just(".."), Just("WORKDIR"), Just("é"),
                Just("LABEL"), Just("ENTRYPOINT"), Just("SHELL"), Just("USER")
            ],
            0..60,
        )
    ) {
        swallow(words.concat().as_bytes());
    }
}
