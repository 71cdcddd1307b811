//! The order of a project's sandboxes: what another depends on comes first.

use std::collections::{BTreeMap, BTreeSet};

/// Names that depend on each other in a circle, the first one again at the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle(pub(super) Vec<String>);

/// Every name after those that it depends on; otherwise in alphabetical order. `depends_on` has an entry for each name.
pub(super) fn order(depends_on: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>, Circle> {
    let mut ordered: Vec<String> = Vec::with_capacity(depends_on.len());
    let mut placed = BTreeSet::new();
    while ordered.len() < depends_on.len() {
        let is_ready = |(name, others): &(&String, &Vec<String>)| {
            !placed.contains(name.as_str()) && others.iter().all(|other| placed.contains(other.as_str()))
        };
        let Some((next, _)) = depends_on.iter().find(is_ready) else {
            return Err(circle(depends_on, &ordered));
        };
        placed.insert(next.as_str());
        ordered.push(next.clone());
    }
    Ok(ordered)
}

/// Follows dependencies from one that cannot be placed until a name comes again.
fn circle(depends_on: &BTreeMap<String, Vec<String>>, placed: &[String]) -> Circle {
    let is_left = |name: &&String| !placed.contains(*name);
    let mut way: Vec<String> = depends_on.keys().find(is_left).into_iter().cloned().collect();
    while let Some(last) = way.last() {
        let Some(next) = depends_on.get(last).and_then(|others| others.iter().find(is_left)) else { break };
        if let Some(start) = way.iter().position(|name| name == next) {
            let mut circle = way.split_off(start);
            circle.push(next.clone());
            return Circle(circle);
        }
        way.push(next.clone());
    }
    Circle(way)
}

/// The chosen names and everything that they depend on.
pub(super) fn with_dependencies(
    depends_on: &BTreeMap<String, Vec<String>>,
    chosen: &[String],
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut left: Vec<&String> = chosen.iter().collect();
    while let Some(name) = left.pop() {
        if all.insert(name.clone()) {
            left.extend(depends_on.get(name).into_iter().flatten());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str) -> BTreeMap<String, Vec<String>> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        text.lines()
            .filter_map(|line| line.trim().split_once(':'))
            .map(|(name, others)| (name.to_owned(), words(others)))
            .collect()
    }

    #[test]
    fn dependencies_come_first() {
        let ordered = order(&graph("api: db cache\n cache:\n db: disk\n disk:\n web: api")).unwrap();
        assert_eq!(ordered, ["cache", "disk", "db", "api", "web"]);
        assert_eq!(order(&BTreeMap::new()), Ok(Vec::new()));
    }

    #[test]
    fn circles_are_named() {
        let circle = |text| order(&graph(text)).unwrap_err().0;
        assert_eq!(circle("a: a"), ["a", "a"]);
        assert_eq!(circle("a: b\n b: c\n c: b\n d:"), ["b", "c", "b"]);
    }

    #[test]
    fn a_choice_brings_what_it_needs() {
        let graph = graph("api: db\n db: disk\n disk:\n web: api");
        let chosen = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            with_dependencies(&graph, &names).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["api"]), ["api", "db", "disk"]);
        assert_eq!(chosen(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_long_chain_is_no_deep_recursion() {
        let graph = (0..500).map(|n| (format!("s{n:03}"), vec![format!("s{:03}", n + 1)]));
        let graph: BTreeMap<_, _> = graph.chain([("s500".to_owned(), Vec::new())]).collect();
        assert_eq!(order(&graph).unwrap().first().unwrap(), "s500");
    }
}
