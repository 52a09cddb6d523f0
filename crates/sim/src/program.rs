//! Execution of system programs such as mkfs.btrfs and umount.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use crate::{Error, Result};

/// Runs `program` and returns its standard output.
pub(crate) fn run<I>(program: &'static str, args: I) -> Result<String>
where
    I: IntoIterator<Item: AsRef<OsStr>>,
{
    let sbin = "/usr/sbin:/sbin";
    let path = std::env::var("PATH").map_or_else(|_| sbin.into(), |path| format!("{path}:{sbin}"));
    let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().into()).collect();
    // With a new PATH and a bare name, `Command` would fork, which copies the page tables of a test with large
    // devices in memory.
    let places = std::env::split_paths(&path).map(|dir| dir.join(program));
    let found = { places }.find(|place| place.is_file());
    let output = Command::new(found.unwrap_or_else(|| PathBuf::from(program)))
        .args(&args)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .output()
        .map_err(|source| Error::NotStarted { program, source })?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed {
        command: format!("{program} {}", args.join(OsStr::new(" ")).display()),
        status: output.status,
        output: stdout + &stderr,
    })
}
