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
                 serve completions version"
        .split_whitespace()
    {
        assert!(page.contains(&format!("## warren {verb}\n")), "{verb}");
        assert!(world.run(&[verb, "--help"]).expect(0).text().contains("Usage: "), "{verb}");
    }
}
