use crate::support::{World, repository};

#[test]
fn the_committed_reference_is_the_generated_one() {
    let world = World::new();
    for (page, file) in [("cli", "cli.md"), ("environment", "environment.md"), ("openapi", "openapi.json")] {
        let generated = world.run(&["reference", page]).expect(0).text();
        let path = repository().join("docs/reference").join(file);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == generated, "docs/reference/{file} is not current: run the tests with BLESS=1");
    }
}

#[test]
fn every_verb_has_a_page_and_help() {
    let world = World::new();
    let page = world.run(&["reference", "cli"]).expect(0).text();
    for verb in "run exec code repl context create start stop pause resume restart rm ps inspect logs cp stats top wait events pull load save image key audit doctor \
                 serve completions version self-check"
        .split_whitespace()
    {
        assert!(page.contains(&format!("## warren {verb}\n")), "{verb}");
        assert!(world.run(&[verb, "--help"]).expect(0).text().contains("Usage: "), "{verb}");
    }
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let world = World::new();
    let pages = world.files().join("man");
    world.run(&["reference", "man", pages.to_str().unwrap()]).expect(0);
    for name in ["warren", "warren-run", "warren-volume-create", "warren-self-check"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
    }
    assert!(!pages.join("warren-probe.1").exists(), "a page of a hidden command");
    let missing = world.run(&["reference", "man"]).expect(2);
    assert!(missing.stderr.contains("DIRECTORY"), "{missing:?}");
}

#[test]
fn the_version_is_the_same_everywhere() {
    let world = World::new();
    let number = env!("CARGO_PKG_VERSION");
    let flag = world.run(&["--version"]).expect(0).text();
    assert!(flag.starts_with(&format!("warren {number}")), "{flag}");
    let told = world.run(&["version"]).expect(0).text();
    assert_eq!(told.lines().next(), Some(flag.trim_end()));
    let json = world.run(&["version", "--json"]).expect(0).json();
    assert_eq!(
        (json["client"].as_str(), json["build"].as_str()),
        (Some(number), flag.trim_end().strip_prefix("warren "))
    );
    world.run(&["ps"]).expect(0);
    assert_eq!(world.run(&["version", "--json"]).expect(0).json()["daemon"]["version"], number);
}
