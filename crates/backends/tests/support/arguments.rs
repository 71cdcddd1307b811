//! The arguments of a test program without the standard harness, as cargo and nextest give them. `--exact` names a
//! group, or a group and a story: `here::many_at_once`.

/// The arguments of the program.
pub(crate) struct Arguments {
    /// Only this group of stories.
    group: Option<String>,
    /// Only stories whose names contain one of these, if there are any.
    words: Vec<String>,
}

impl Arguments {
    /// Lists the groups when that is asked, and returns `None` then.
    pub(crate) fn read(groups: &[String]) -> Option<Self> {
        let (flags, mut words): (Vec<_>, Vec<_>) =
            std::env::args().skip(1).partition(|word| word.starts_with('-'));
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        if has("--list") {
            // None of them is ignored, which is asked separately.
            for group in groups.iter().filter(|_| !has("--ignored")) {
                println!("{group}: test");
            }
            return None;
        }
        let mut group = (has("--exact") && !words.is_empty()).then(|| words.remove(0));
        if let Some((name, story)) = group.as_deref().and_then(|name| name.split_once("::")) {
            words.push(story.to_owned());
            group = Some(name.to_owned());
        }
        Some(Self { group, words })
    }

    pub(crate) fn wants_group(&self, name: &str) -> bool {
        self.group.as_ref().is_none_or(|group| group == name)
    }

    pub(crate) fn wants_story(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// The same stories of one group, for another process.
    pub(crate) fn for_group(&self, name: &str) -> impl Iterator<Item = String> {
        ["--exact".to_owned(), name.to_owned()].into_iter().chain(self.words.clone())
    }
}
