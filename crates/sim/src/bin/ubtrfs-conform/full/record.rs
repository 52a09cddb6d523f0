//! The description of a process's tree, in a folder on another file system.
//!
//! `index` has a line for each name; the contents of files are next to it.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::model::Model;

#[derive(Debug, Default)]
pub(super) struct Record {
    index: String,
    files: u64,
}

impl Record {
    /// Adds a file, or a part of a shared file: `name` below the mount, and the start of the part.
    pub(super) fn file(
        &mut self,
        state: &Path,
        name: &str,
        base: Option<u64>,
        model: &Model,
    ) -> io::Result<()> {
        let contents = self.files;
        self.files += 1;
        fs::write(state.join(contents.to_string()), &model.bytes)?;
        let unsure: Vec<String> = model.unsure.iter().map(u64::to_string).collect();
        let (unsure, base) = (unsure.join(","), base.map_or(-1, u64::cast_signed));
        let _ = writeln!(self.index, "file {contents} {base} [{unsure}] {name}");
        Ok(())
    }

    pub(super) fn link(&mut self, name: &str, target: &str) {
        let _ = writeln!(self.index, "link {target} {name}");
    }

    pub(super) fn dir(&mut self, name: &str, entries: usize) {
        let _ = writeln!(self.index, "dir {entries} {name}");
    }

    pub(super) fn finish(self, state: &Path) -> io::Result<()> {
        fs::write(state.join("index"), self.index)
    }
}

/// Lists the differences between a description and a mount.
pub(super) fn verify(mount: &Path, state: &Path) -> io::Result<Vec<String>> {
    let index = fs::read_to_string(state.join("index"))?;
    let mut faults = Vec::new();
    for line in index.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = words[words.len() - 1];
        let path = mount.join(name);
        let fault = match words[..] {
            ["file", contents, base, unsure, _] => {
                verify_file(&path, &state.join(contents), base, unsure)
            }
            ["link", target, _] => fs::read_link(&path).map(|found| {
                (found != Path::new(target)).then(|| format!("leads to {}", found.display()))
            }),
            ["dir", entries, _] => fs::read_dir(&path).map(|found| {
                let count = found.count();
                (count.to_string() != entries).then(|| format!("{count} entries, not {entries}"))
            }),
            _ => Ok(Some("no such line".to_owned())),
        };
        match fault {
            Ok(None) => {}
            Ok(Some(fault)) => faults.push(format!("{name}: {fault}")),
            Err(error) => faults.push(format!("{name}: {error}")),
        }
    }
    Ok(faults)
}

fn verify_file(
    path: &Path,
    contents: &Path,
    base: &str,
    unsure: &str,
) -> io::Result<Option<String>> {
    let unsure = unsure.trim_matches(['[', ']']).split(',');
    let model = Model {
        bytes: fs::read(contents)?,
        unsure: unsure.filter_map(|page| page.parse().ok()).collect(),
    };
    let found = fs::read(path)?;
    let base: Option<usize> = base.parse().ok();
    let part = match base {
        Some(base) => &found[base.min(found.len())..(base + model.bytes.len()).min(found.len())],
        None => &found[..],
    };
    let about = fs::metadata(path)?;
    Ok(if part.len() as u64 != model.len() {
        Some(format!("{} bytes, not {}", part.len(), model.len()))
    } else if about.len() != found.len() as u64 {
        Some(format!(
            "a size of {} and {} bytes",
            about.len(),
            found.len()
        ))
    } else {
        let wrong = model.first_wrong(0, part);
        wrong.map(|at| format!("byte {at} is not what was written"))
    })
}
