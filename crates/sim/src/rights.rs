//! The rights of the user that runs the tests.

/// Returns whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Adds to options of our mount what lets the user who mounts do there all that root may.
pub fn with_roots_rights(options: &str) -> String {
    match is_root() {
        true => options.to_owned(),
        false => format!("{options},fakeroot"),
    }
}
