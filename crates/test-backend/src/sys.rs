//! Code that runs before and after `main`, which in a test program belongs to the harness.

ctor::declarative::ctor! {
    /// Returns at once in every process that was not started as a spawner.
    #[ctor(unsafe)]
    fn take_role() {
        crate::roles::take_role();
    }
}

dtor::declarative::dtor! {
    #[dtor(unsafe)]
    fn clear_away() {
        crate::common::clear_away();
    }
}
