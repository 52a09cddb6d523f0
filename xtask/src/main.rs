//! Chores of the workspace, run as `cargo xtask NAME`.

mod baseline;
mod count;
mod files;
mod imports;
mod source;
mod tidy;
mod units;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::count::Build;

const USAGE: &str = "\
usage: cargo xtask tidy              check the sources against the rules of the house
       cargo xtask tidy --lower-baselines
                                     lower the numbers of known faults to what is found, and check
       cargo xtask wording           print how often comments and pages have patterns that tidy counts
       cargo xtask imports [--dot] [CRATE]
                                     list the imports between the modules of each crate
       cargo xtask header            write the header of the library for C, and the options of that for Python
       cargo xtask count [--dev] [--write]
                                     compare (or keep) the instructions of the layers' hottest work
       cargo xtask units [ARG...]    run all tests, some programs at once; ARGs go to each of them
       cargo xtask units --without-root [ARG...]
                                     run them as the user nobody, if that user can enter this folder";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tidy"] => tidy::run(&workspace(), false),
        ["tidy", "--lower-baselines"] => tidy::run(&workspace(), true),
        ["wording"] => tidy::print_wording(&workspace()),
        ["imports"] => imports::run(&workspace(), None, false),
        ["imports", "--dot"] => imports::run(&workspace(), None, true),
        ["imports", name] => imports::run(&workspace(), Some(name), false),
        ["imports", "--dot", name] | ["imports", name, "--dot"] => {
            imports::run(&workspace(), Some(name), true)
        }
        ["header"] => write_header(&workspace()),
        ["count"] => count::run(&workspace(), Build::Release, false),
        ["count", "--write"] => count::run(&workspace(), Build::Release, true),
        ["count", "--dev"] => count::run(&workspace(), Build::Dev, false),
        ["count", "--dev", "--write"] => count::run(&workspace(), Build::Dev, true),
        ["units", args @ ..] => units::run(&workspace(), args),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Writes the header, by running its test. A direct call would make tidy depend on the crates that this needs.
fn write_header(root: &Path) -> ExitCode {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args([
        "test",
        "--quiet",
        "--package",
        "ubtrfs-c",
        "--test",
        "header",
    ]);
    cargo.current_dir(root).env("UBTRFS_WRITE_HEADER", "1");
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("header: cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns cargo's target folder.
fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target)
}

fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}
