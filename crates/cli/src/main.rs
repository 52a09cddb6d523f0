//! The `ubtrfs` command: one file per verb.
fn main() {}
