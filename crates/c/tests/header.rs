//! The header is generated from the sources by cbindgen, with the options from their tables. The options of the package
//! for Python are generated from the same table. `UBTRFS_WRITE_HEADER` makes the tests write both (`cargo xtask header`).

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, Language, Style};
use ubtrfs::{
    CHECK_OPTIONS, COPY_OPTIONS, MKFS_OPTIONS, NamedOption, OPEN_OPTIONS, OptionKind,
    RECEIVE_OPTIONS,
};

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
    let [open, mkfs, check] = ubtrfs_c::option_lines();
    let [transfer, receive] = ubtrfs_c::transfer_option_lines();
    let lists = [
        ("{options of opening}", open),
        ("{options of making}", mkfs),
        ("{options of checking}", check),
        ("{options of transfers}", transfer),
        ("{options of receiving}", receive),
    ];
    let mut text = String::from_utf8(text).unwrap();
    for (place, lines) in lists {
        let list: String = lines.iter().map(listed).collect();
        text = text.replace(&format!(" * {place}\n"), &list);
    }
    text
}

/// Returns the lines of a comment for an option.
fn listed(option: &ubtrfs_c::OptionLine) -> String {
    let text = format!("\"{}\": {}. {}", option.name, option.syntax, option.help);
    wrapped(&text, " * - ", " *   ")
}

/// Wraps a paragraph. The first line begins with `first`, and all others with `other`.
fn wrapped(text: &str, first: &str, other: &str) -> String {
    let mut lines = vec![first.to_owned()];
    for word in text.split(' ') {
        if lines[lines.len() - 1].len() + word.len() > 120 {
            lines.push(other.to_owned());
        }
        let last = lines.len() - 1;
        lines[last] += &format!("{word} ");
    }
    let lines = lines.iter().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

const PATH_OF_PYTHON: &str = "Union[str, bytes, \"os.PathLike[str]\", \"os.PathLike[bytes]\"]";

/// Returns the classes of options for the package for Python.
fn options_of_python() -> String {
    let mut text = String::from(PYTHON_HEAD);
    for option in OPEN_OPTIONS {
        let (help, default) = (option.help(), option.default_value());
        let line = format!("`{}`: {help} Default: {default}.", option.name());
        text += &wrapped(&line, "    - ", "      ");
    }
    text += "    \"\"\"\n\n";
    for option in OPEN_OPTIONS {
        let hint = match option.kind() {
            OptionKind::Flag => "bool".into(),
            OptionKind::Bytes => "Optional[int]".into(),
            OptionKind::Interval => "Optional[float]".into(),
            OptionKind::Compression | OptionKind::Text => "Optional[str]".into(),
            OptionKind::Discard => "Union[bool, str]".into(),
            OptionKind::Paths => format!("Iterable[{PATH_OF_PYTHON}]"),
            kind => panic!("no type of Python for {kind:?}"),
        };
        text += &format!("    {}: {hint}\n", option.name());
    }
    for (class, subject, lines) in [
        ("MkfsOptions", "a new volume", class_lines(MKFS_OPTIONS)),
        ("CopyOptions", "copies", class_lines(COPY_OPTIONS)),
        ("ReceiveOptions", "receiving", class_lines(RECEIVE_OPTIONS)),
        ("CheckOptions", "checks", class_lines(CHECK_OPTIONS)),
    ] {
        text += &format!("\n\nclass {class}(TypedDict, total=False):\n");
        text += &format!("    \"\"\"The options of {subject}. None selects a default.\n\n{lines}");
    }
    text
}

/// Returns the documentation and the fields of a class.
fn class_lines<T>(options: &[NamedOption<T>]) -> String {
    let mut text = String::new();
    for option in options {
        let line = format!("`{}`: {}", option.name(), option.help());
        text += &wrapped(&line, "    - ", "      ");
    }
    text += "    \"\"\"\n\n";
    for option in options {
        let hint = match option.syntax() {
            "true or false" => "bool".into(),
            "a number" | "a number of bytes" | "an octal number" | "seconds since 1970" => {
                "Optional[int]".into()
            }
            "UID:GID" => "Optional[Tuple[int, int]]".into(),
            "a UUID" => "Optional[_uuid.UUID]".into(),
            "a path" => format!("Optional[{PATH_OF_PYTHON}]"),
            "a path, added to earlier ones" => format!("Iterable[{PATH_OF_PYTHON}]"),
            _ => "Optional[str]".into(),
        };
        text += &format!("    {}: {hint}\n", option.name());
    }
    text
}

const PYTHON_HEAD: &str = r#""""The options of `Volume.open`, of new volumes, of copies, of receiving and of checks.

Generated from the tables of the library by `cargo xtask header`.
"""

import os
import uuid as _uuid
from typing import Iterable, Optional, Tuple, TypedDict, Union


class OpenOptions(TypedDict, total=False):
    """The options for opening a volume. None selects a default, but a `commit_interval` of None means no interval.

"#;

/// Compares a generated file with the one in the checkout, or writes it.
fn compare(path: &Path, made: &str) {
    if std::env::var_os("UBTRFS_WRITE_HEADER").is_some() {
        fs::write(path, made).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap();
    assert!(made == kept, "{}: run `cargo xtask header`", path.display());
}

#[test]
fn header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    compare(&root.join("include/ubtrfs.h"), &made(root));
}

#[test]
fn options_of_python_are_those_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../python/python/ubtrfs/_options.py");
    compare(&path, &options_of_python());
}
