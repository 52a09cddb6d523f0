//! Runs the command.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn mkfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    command.arg("mkfs").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// Creates a volume with image files in `dir` and returns their paths. `words` are options.
pub(crate) fn make(dir: &Path, words: &str, devices: usize, rootdir: &Path) -> Vec<PathBuf> {
    let images: Vec<PathBuf> = (0..devices)
        .map(|number| dir.join(format!("dev{number}.img")))
        .collect();
    for image in &images {
        let _ = std::fs::remove_file(image);
    }
    let output = mkfs()
        .arg("-q")
        .args(words.split_whitespace())
        .arg("--rootdir")
        .arg(rootdir)
        .args(&images)
        .output()
        .unwrap();
    assert_success(words, &output);
    images
}

pub(crate) fn assert_success(words: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
}

/// Returns the command's message when it refuses.
pub(crate) fn refusal<I, S>(args: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let output = mkfs().arg("-q").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("ERROR: "), "{said}");
    said
}
