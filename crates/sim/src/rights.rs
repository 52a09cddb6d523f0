//! The permissions of the user that runs the tests.

/// Returns whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Adds a mount option that gives the mounting user the permissions of root there.
pub fn with_roots_rights(options: &str) -> String {
    if is_root() {
        options.to_owned()
    } else {
        format!("{options},fakeroot")
    }
}
