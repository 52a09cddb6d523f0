//! `cargo xtask count`: instructions of the layers' hottest work, compared with the recorded counts.
//!
//! Instructions do not measure time, but they do not depend on the load of the machine. The release build is the one
//! that users get. The tests count in the dev build, which exists already: its counts are larger, and rise with the
//! same faults.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

const HOTTEST: [&str; 5] = ["get", "put", "apply", "check-leaf", "delayed-refs"];
const CALLS: u64 = 20;
/// A count above this percentage of the recorded count is a fault.
const MOST_PERCENT: u64 = 125;

/// The build whose instructions are counted.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    Release,
    Dev,
}

impl Build {
    /// Returns the file of the recorded counts.
    fn kept(self) -> &'static str {
        match self {
            Build::Release => "benches/layers/instructions.txt",
            Build::Dev => "benches/layers/instructions-dev.txt",
        }
    }

    /// Returns its path below cargo's target folder.
    fn program(self) -> &'static str {
        match self {
            Build::Release => "release/ubtrfs-layers",
            Build::Dev => "debug/ubtrfs-layers",
        }
    }

    fn cargo(self) -> &'static [&'static str] {
        match self {
            // Together with the command, so that crates have the same features as in `make build`.
            Build::Release => &[
                "build",
                "--release",
                "--package=ubtrfs-layers",
                "--package=ubtrfs-cli",
            ],
            // For a single package, crates would have other features, and be built again.
            Build::Dev => &["test", "--workspace", "--no-run"],
        }
    }
}

pub(crate) fn run(root: &Path, build: Build, writes: bool) -> ExitCode {
    match count_all(root, build) {
        Ok(counted) if writes => write_kept(root, build, &counted),
        Ok(counted) => compare(root, build, &counted),
        Err(why) => {
            eprintln!("count: {why}");
            ExitCode::FAILURE
        }
    }
}

type Counts = BTreeMap<String, u64>;

fn count_all(root: &Path, build: Build) -> Result<Counts, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(build.cargo())
        .args(["--locked", "--quiet"])
        .current_dir(root)
        .status();
    if !built.map_err(|error| error.to_string())?.success() {
        return Err("cannot build ubtrfs-layers".into());
    }
    let program = crate::target(root).join(build.program());
    let count = |name: &str| Ok((name.to_owned(), count(&program, name)?));
    HOTTEST.iter().map(|name| count(name)).collect()
}

/// Counts the instructions per item.
fn count(program: &Path, name: &str) -> Result<u64, String> {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*measured*")
        .arg(program)
        .args([name, &CALLS.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let (out, said) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    let things: Option<u64> = out.trim().parse().ok();
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1));
    let instructions = collected.and_then(|text| text.trim().parse::<u64>().ok());
    match (things, instructions) {
        (Some(things), Some(instructions)) if instructions > 0 => {
            Ok((instructions / (CALLS * things)).max(1))
        }
        _ => Err(format!("valgrind counted nothing of {name}: {said}")),
    }
}

fn write_kept(root: &Path, build: Build, counted: &Counts) -> ExitCode {
    let kept = build.kept();
    let path = root.join(kept);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let head = before.lines().filter(|line| line.starts_with('#'));
    let mut text: String = head.flat_map(|line| [line, "\n"]).collect();
    for (name, count) in counted {
        let _ = writeln!(text, "{name} {count}");
    }
    match fs::write(path, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("count: {kept}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(root: &Path, build: Build, counted: &Counts) -> ExitCode {
    let file = build.kept();
    let kept = parse(&fs::read_to_string(root.join(file)).unwrap_or_default());
    let mut outcome = ExitCode::SUCCESS;
    for (name, count) in counted {
        let Some(before) = kept.get(name) else {
            eprintln!("count: {name} is not in {file}");
            outcome = ExitCode::FAILURE;
            continue;
        };
        println!("count: {name}: {count} instructions, {before} kept");
        if count * 100 > before * MOST_PERCENT {
            eprintln!("count: {name} takes over {MOST_PERCENT} % of what it took");
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}

fn parse(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn remarks_are_no_counts() {
        let counts = parse("# get 1\nget 120\nput x\n");
        assert_eq!(counts.len(), 1);
        assert_eq!(counts["get"], 120);
    }
}
