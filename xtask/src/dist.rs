//! Man pages and shell completions, asked from the built command itself, so that they match it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{fs, io};

/// Shell name as the command knows it, and its file.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "ubtrfs.bash"),
    ("zsh", "ubtrfs.zsh"),
    ("fish", "ubtrfs.fish"),
];

pub(crate) fn run(binary: &Path, dir: &Path) -> ExitCode {
    match write_all(binary, dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dist: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(binary: &Path, dir: &Path) -> io::Result<()> {
    let man = dir.join("man");
    let completions = dir.join("completions");
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    output(Command::new(binary).arg("man").arg(&man))?;
    for (shell, file) in SHELLS {
        let script = output(Command::new(binary).arg("completions").arg(shell))?;
        fs::write(completions.join(file), script)?;
    }
    Ok(())
}

fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{command:?}: {}: {stderr}",
        output.status
    )))
}
