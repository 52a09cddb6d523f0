//! Running other programs to completion.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cleanup;

/// The result of a finished program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) took: Duration,
    pub(crate) output: String,
}

/// Runs a program. If it fails, the error contains its output.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, args: &[A]) -> Result<Ran> {
    let mut command = Command::new(program);
    command.args(args);
    run_command(command)
}

pub(crate) fn run_command(mut command: Command) -> Result<Ran> {
    let program = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (child, undo) =
        cleanup::spawn(&mut command).with_context(|| format!("cannot run {program}"))?;
    let output = child.wait_with_output();
    let took = begin.elapsed();
    cleanup::done(&undo);
    let output = output?;
    if !output.status.success() {
        bail!(
            "{program}: {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(Ran {
        took,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Returns the first output line of a program, if it exists and succeeds.
pub(crate) fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let ran = run(program, args).ok()?;
    ran.output.lines().next().map(|line| line.trim().to_owned())
}
