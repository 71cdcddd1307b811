//! Who may see and touch what. Front ends authenticate; only this file refuses.

use sandbox::{Error, ErrorKind, Namespace, Result};

/// Who asks, as a front end found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// For the log and the events.
    pub name: String,
    pub scope: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every namespace.
    All,
    /// One, as if there were no other.
    One(Namespace),
}

impl Principal {
    /// Someone who may do everything.
    pub fn operator(name: impl Into<String>) -> Self {
        Self { name: name.into(), scope: Scope::All }
    }

    pub fn of_namespace(name: impl Into<String>, namespace: Namespace) -> Self {
        Self { name: name.into(), scope: Scope::One(namespace) }
    }

    /// Whether things of `namespace` exist for this principal at all.
    pub fn sees(&self, namespace: &Namespace) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::One(own) => own == namespace,
        }
    }

    /// Where a name is looked up when the caller did not say.
    pub(crate) fn home_namespace(&self) -> Namespace {
        match &self.scope {
            Scope::All => Namespace::default(),
            Scope::One(own) => own.clone(),
        }
    }

    pub(crate) fn may_create_in(&self, namespace: &Namespace) -> Result<()> {
        if self.sees(namespace) {
            return Ok(());
        }
        let own = self.home_namespace();
        let message = format!("{} may not create sandboxes in namespace {namespace}", self.name);
        Err(Error::new(ErrorKind::Denied, message).with_hint(format!("Use the namespace {own}.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_sees_its_own_namespace_and_no_other() {
        let (red, blue): (Namespace, Namespace) = ("red".parse().unwrap(), "blue".parse().unwrap());
        let ana = Principal::of_namespace("ana", red.clone());
        assert!(ana.sees(&red) && !ana.sees(&blue));
        assert_eq!(ana.may_create_in(&blue).unwrap_err().kind(), ErrorKind::Denied);
        assert!(Principal::operator("root").may_create_in(&blue).is_ok());
    }
}
