//! microsandbox's own images, which stand for an interpreter that the host's programs have.

use sandbox::{Error, ErrorKind, Language};

const STAND_INS: [(&str, Language); 2] =
    [("microsandbox/python", Language::Python), ("microsandbox/node", Language::JavaScript)];

/// The language that an image stands for, if it is one of microsandbox's own. Such a sandbox is made from image `host`,
/// and must turn out to have the interpreter.
pub fn stand_in(image: &str) -> Option<Language> {
    let bare = image.split(':').next().unwrap_or(image);
    STAND_INS.iter().find(|(name, _)| *name == bare).map(|(_, language)| *language)
}

/// The refusal where it has not.
pub fn lacks_language(image: &str, language: Language) -> Error {
    let message =
        format!("{image} stands for the {language} of this host, which has none; name another image");
    Error::new(ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_own_images_stand_for_a_language() {
        assert_eq!(stand_in("microsandbox/python"), Some(Language::Python));
        assert_eq!(stand_in("microsandbox/node:latest"), Some(Language::JavaScript));
        assert_eq!((stand_in("python"), stand_in("evil/microsandbox/python")), (None, None));
    }
}
