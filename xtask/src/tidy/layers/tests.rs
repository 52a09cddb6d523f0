//! Imports against the order are refused beyond the known number.

use super::*;

fn file(path: &str, text: &str) -> File {
    File::new(Path::new(path), text.to_owned())
}

/// Returns files of a crate `ubtrfs` with all its modules.
fn crate_with(import: &str) -> Vec<File> {
    let layers = Order::of("ubtrfs").layers.iter();
    let modules = layers.flat_map(|layer| layer.split_whitespace());
    let mut files: Vec<File> = modules
        .filter(|module| *module != "file")
        .map(|module| file(&format!("crates/ubtrfs/src/{module}.rs"), ""))
        .collect();
    files.push(file("crates/ubtrfs/src/file/mod.rs", import));
    files
}

fn findings(files: &[File]) -> (Vec<Finding>, Counts) {
    let mut findings = Vec::new();
    let nowhere = Path::new("/nonexistent");
    let counted = check(nowhere, files, &mut findings);
    (findings, counted.counts)
}

/// TIDY-7
#[test]
fn upward_import_is_refused() {
    let (findings, counts) = findings(&crate_with("//! A.\nuse crate::paths::X;\n"));
    let import = "file names paths::X".to_owned();
    let fault = Fault::UpwardImport { line: 2, import };
    let path = "crates/ubtrfs/src/file/mod.rs";
    assert_eq!(findings, [Finding::new(path, fault)]);
    assert_eq!(counts["ubtrfs file -> paths"], 1);
}

#[test]
fn import_in_one_layer_is_refused() {
    let (findings, counts) = findings(&crate_with("use super::changes::X;"));
    assert_eq!((findings.len(), counts.len()), (1, 1));
}

#[test]
fn downward_import_is_allowed() {
    let (findings, counts) = findings(&crate_with("use crate::metadata::X;"));
    assert_eq!((findings.len(), counts.len()), (0, 0));
}

#[test]
fn modules_that_the_first_file_declares_are_above_all() {
    let (findings, counts) = findings(&crate_with("use crate::Whole;"));
    assert_eq!((findings.len(), counts.len()), (1, 1));
    assert!(!is_upward("sim", "scratch", TOP));
}

#[test]
fn known_imports_are_allowed() {
    let files = crate_with("use crate::paths::{X, Y};");
    let crates = imports::of_crates(&files);
    for (text, expected) in [("2", 0), ("1", 2)] {
        let text = format!("ubtrfs file -> paths {text}\n");
        let mut findings = Vec::new();
        let baseline = Baseline::new(UPWARD, text);
        find_new("ubtrfs", &crates["ubtrfs"], &baseline, &mut findings);
        assert_eq!(findings.len(), expected);
    }
}

#[test]
fn module_without_a_place_is_found() {
    let mut files = crate_with("");
    files.push(file("crates/ubtrfs/src/extra.rs", ""));
    files.retain(|file| !file.path.ends_with("removal.rs"));
    let (findings, _) = findings(&files);
    let module = |name: &str| name.to_owned();
    assert_eq!(
        findings
            .into_iter()
            .map(|finding| finding.fault)
            .collect::<Vec<_>>(),
        [
            Fault::UnlistedModule {
                module: module("extra")
            },
            Fault::StaleModule {
                module: module("removal")
            },
        ]
    );
}

#[test]
fn each_module_has_one_place() {
    for (name, _) in ORDERS {
        let mut modules: Vec<&str> = Order::of(name).modules().collect();
        let all = modules.len();
        modules.sort_unstable();
        modules.dedup();
        assert_eq!(modules.len(), all, "{name}");
    }
}
