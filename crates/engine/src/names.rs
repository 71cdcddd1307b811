//! Names for unnamed sandboxes: an adjective, a noun and a number, easy to say and to type.

use sandbox::{Error, ErrorKind, ExecId, Result, SandboxId, SandboxName};

const ADJECTIVES: [&str; 64] = [
    "amber", "bold", "brave", "brisk", "bright", "calm", "clever", "cosy", "crisp", "dapper", "deft",
    "eager", "early", "fair", "fleet", "fond", "fresh", "gentle", "glad", "golden", "grand", "green",
    "happy", "hardy", "hazel", "humble", "jolly", "keen", "kind", "lively", "lucky", "lunar", "mellow",
    "merry", "mild", "misty", "modest", "neat", "nimble", "noble", "olive", "patient", "plain", "plucky",
    "polite", "proud", "quick", "quiet", "rapid", "ready", "rosy", "round", "rustic", "silver", "snug",
    "solid", "spry", "steady", "sunny", "swift", "tidy", "warm", "wise", "witty",
];

const NOUNS: [&str; 64] = [
    "acorn", "alder", "badger", "bank", "birch", "bramble", "brook", "burrow", "canyon", "cedar", "clover",
    "copse", "crane", "dale", "dell", "dune", "falcon", "fen", "fern", "field", "finch", "forest", "fox",
    "garden", "glade", "grove", "hare", "harbor", "heath", "hedge", "heron", "hill", "hollow", "island",
    "ivy", "lagoon", "lark", "lemming", "maple", "marmot", "marsh", "meadow", "mole", "moor", "moss", "oak",
    "otter", "pine", "plover", "pond", "quail", "rabbit", "reed", "ridge", "robin", "spring", "stone",
    "thicket", "thistle", "vale", "vole", "willow", "wren", "yarrow",
];

/// Numbers from 10 to 9999, which gives forty million names.
const NUMBERS: u64 = 9990;

pub(crate) fn random_name() -> Result<SandboxName> {
    let bits = u64::from_le_bytes(random_bytes()?);
    let (adjective, rest) = (bits % 64, bits / 64);
    let (noun, rest) = (rest % 64, rest / 64);
    let name = format!("{}-{}-{}", ADJECTIVES[adjective as usize], NOUNS[noun as usize], 10 + rest % NUMBERS);
    Ok(name.parse()?)
}

pub(crate) fn random_sandbox_id() -> Result<SandboxId> {
    Ok(SandboxId::from_random(random_bytes()?))
}

pub(crate) fn random_exec_id() -> Result<ExecId> {
    Ok(ExecId::from_random(random_bytes()?))
}

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|source| {
        Error::new(ErrorKind::Unavailable, "could not get random numbers from the host").with_source(source)
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_are_names_and_seldom_the_same() {
        let names: std::collections::HashSet<_> = (0..1000).map(|_| random_name().unwrap()).collect();
        assert!(names.len() > 990);
        assert!(names.iter().all(|name| name.as_str().split('-').count() == 3));
    }
}
