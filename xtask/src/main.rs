//! Chores of the workspace, run as `cargo xtask NAME`.
fn main() {}
