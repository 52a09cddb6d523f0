//! Each rule finds its planted fault, and no fault in a correct file.

use super::*;

fn faults(path: &str, text: &str) -> Vec<Fault> {
    check(Path::new(path), text)
}

#[test]
fn good_file_has_no_fault() {
    assert_eq!(
        faults("crates/tree/src/lib.rs", "//! Role.\nfn a() {}\n"),
        []
    );
}

/// TIDY-1
#[test]
fn file_without_role_is_found() {
    assert_eq!(
        faults("crates/tree/src/lib.rs", "fn a() {}\n"),
        [Fault::NoRole]
    );
}

/// TIDY-2
#[test]
fn long_file_is_found() {
    let text = format!("//! Role.\n{}", "\n".repeat(MAX_LINES));
    let lines = MAX_LINES + 1;
    assert_eq!(faults("xtask/src/a.rs", &text), [Fault::TooLong { lines }]);
}

/// TIDY-3
#[test]
fn leftovers_are_found_with_their_line() {
    for word in LEFTOVERS {
        let text = format!("//! Role.\n// {word}\n");
        assert_eq!(
            faults("crates/tree/src/lib.rs", &text),
            [Fault::Leftover { line: 2, word }]
        );
    }
}

/// TIDY-4
#[test]
fn dependency_on_higher_layer_is_found() {
    for line in [
        "ubtrfs-fs = { path = \"../fs\" }",
        "ubtrfs-fs.workspace = true",
        "[dependencies.ubtrfs-fs]",
    ] {
        let text = format!("[dependencies]\nubtrfs-device.workspace = true\n{line}\n");
        let names = "fs".to_owned();
        assert_eq!(
            faults("crates/tree/Cargo.toml", &text),
            [Fault::Upward { line: 3, names }]
        );
    }
}

#[test]
fn the_library_has_a_layer_without_a_dash_in_its_name() {
    let text = "[dependencies]\nubtrfs = { path = \"../ubtrfs\" }\n";
    let upward = Fault::Upward {
        line: 2,
        names: "ubtrfs".to_owned(),
    };
    assert_eq!(faults("crates/fuse/Cargo.toml", text), [upward]);
    assert_eq!(faults("crates/cli/Cargo.toml", text), []);
}

#[test]
fn sim_is_allowed_for_tests_only() {
    let dev = "[dev-dependencies]\nubtrfs-sim = { path = \"../sim\" }\n";
    assert_eq!(faults("crates/tree/Cargo.toml", dev), []);
    let product = "[dependencies]\nubtrfs-sim = { path = \"../sim\" }\n";
    assert_eq!(
        faults("crates/tree/Cargo.toml", product),
        [Fault::SimInProduct { line: 2 }]
    );
}

#[test]
fn tests_may_make_and_judge_volumes() {
    let upward = |names: &str| Fault::Upward {
        line: 2,
        names: names.to_owned(),
    };
    let manifest = |section: &str, names: &str| {
        format!("[{section}]\nubtrfs-{names} = {{ path = \"../{names}\" }}\n")
    };
    let engine = "crates/fs/Cargo.toml";
    for names in ["check", "mkfs"] {
        assert_eq!(faults(engine, &manifest("dev-dependencies", names)), []);
        let product = manifest("dependencies", names);
        assert_eq!(faults(engine, &product), [upward(names)]);
    }
    let reader = manifest("dev-dependencies", "fs");
    assert_eq!(faults("crates/mkfs/Cargo.toml", &reader), []);
    assert_eq!(faults("crates/check/Cargo.toml", &reader), [upward("fs")]);
}

#[test]
fn unknown_layer_is_found() {
    let name = "new".to_owned();
    assert_eq!(
        faults("crates/new/Cargo.toml", "[package]\n"),
        [Fault::UnknownLayer { name }]
    );
}

/// TIDY-5
#[test]
fn trailing_space_and_missing_newline_are_found() {
    assert_eq!(
        faults("README.md", "a \nb"),
        [Fault::TrailingSpace { line: 1 }, Fault::NoFinalNewline]
    );
}

/// TIDY-6
#[test]
fn vague_name_is_found() {
    assert_eq!(
        faults("crates/tree/src/utils.rs", "//! Role.\n"),
        [Fault::VagueName]
    );
    assert_eq!(
        faults("crates/tree/tests/common/mod.rs", "//! Role.\n"),
        [Fault::VagueName]
    );
}
