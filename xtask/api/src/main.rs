//! Compares the public items of the library with their list, `crates/ubtrfs/public-api.txt`.
//!
//! The items are read from rustdoc's JSON, which the stable rustdoc writes with `RUSTC_BOOTSTRAP`. That variable must
//! reach rustdoc alone, because build scripts of dependencies run again when it changes. So this program is cargo's
//! rustdoc as well, and passes its arguments on.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Set for the processes that cargo starts as rustdoc.
const AS_RUSTDOC: &str = "UBTRFS_API_RUSTDOC";
const LIST: &str = "crates/ubtrfs/public-api.txt";

fn main() -> Result<ExitCode> {
    if env::var_os(AS_RUSTDOC).is_some() {
        let mut rustdoc = Command::new("rustdoc");
        rustdoc
            .args(env::args_os().skip(1))
            .env("RUSTC_BOOTSTRAP", "1");
        return Err(rustdoc.exec()).context("cannot run rustdoc");
    }
    let writes = env::args().skip(1).any(|arg| arg == "--write");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = items(&json(&root)?)?;
    let list = root.join(LIST);
    if writes {
        fs::write(&list, found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let known = fs::read_to_string(&list).with_context(|| format!("cannot read {LIST}"))?;
    if known == found {
        println!("api: {} lines, as in {LIST}", found.lines().count());
        return Ok(ExitCode::SUCCESS);
    }
    print_difference(&known, &found);
    eprintln!(
        "api: {LIST} differs: look at each line, then run `cargo run -p xtask-api -- --write`"
    );
    Ok(ExitCode::FAILURE)
}

/// Runs rustdoc, and returns the path of its JSON.
fn json(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args([
            "rustdoc",
            "--quiet",
            "--locked",
            "--package",
            "ubtrfs",
            "--lib",
            "--",
        ])
        .args(["-Zunstable-options", "--output-format", "json"])
        .current_dir(root)
        .env("RUSTDOC", env::current_exe()?)
        .env(AS_RUSTDOC, "1");
    ensure!(cargo.status()?.success(), "rustdoc failed");
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    Ok(root.join(target).join("doc/ubtrfs.json"))
}

/// Lists the public items, one a line. Derived and automatic implementations are left out.
fn items(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

fn print_difference(known: &str, found: &str) {
    let [known, found]: [BTreeSet<&str>; 2] = [known, found].map(|text| text.lines().collect());
    for gone in known.difference(&found) {
        eprintln!("-{gone}");
    }
    for new in found.difference(&known) {
        eprintln!("+{new}");
    }
}
