//! The header is generated from the sources by cbindgen. `UBTRFS_WRITE_HEADER` makes the test write it
//! (`cargo xtask header`).

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, Language, Style};

/// Files with functions or types, in the order of the header.
const SOURCES: &[&str] = &[
    "failure",
    "metadata",
    "progress",
    "options",
    "volume",
    "group",
    "report",
    "subvolume",
    "paths",
    "attributes",
    "directory",
    "file",
    "transfer_options",
    "trees",
    "streams",
];

fn made(root: &Path) -> String {
    let head = fs::read_to_string(root.join("include/head.h")).unwrap();
    let includes = ["stdbool.h", "stddef.h", "stdint.h"];
    let config = Config {
        header: Some(head.trim_end().to_owned()),
        include_guard: Some("UBTRFS_H".to_owned()),
        sys_includes: includes.map(str::to_owned).to_vec(),
        no_includes: true,
        language: Language::C,
        cpp_compat: true,
        // Distinguishes the structure and the function `ubtrfs_stat`, as in stat(2).
        style: Style::Tag,
        usize_is_size_t: true,
        ..Config::default()
    };
    let builder = SOURCES
        .iter()
        .map(|name| root.join(format!("src/{name}.rs")))
        .fold(Builder::new().with_config(config), Builder::with_src);
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/ubtrfs.h");
    let made = made(root);
    if std::env::var_os("UBTRFS_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(made == kept, "it is stale: run `cargo xtask header`");
}
