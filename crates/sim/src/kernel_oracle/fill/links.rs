//! Hard links: too many for an INODE_REF, with colliding hashes, and across many directories.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Scale, colliding_names, write};
use crate::Result;
use crate::error::At;

/// Returns the number of names of one file in one directory.
pub(super) fn fill(dir: &Path, scale: &Scale) -> Result<usize> {
    let one_dir = dir.join("one-dir");
    fs::create_dir(&one_dir).at("create", &one_dir)?;
    let first = one_dir.join("first");
    write(&first, "one of many names")?;
    let mut names: Vec<Vec<u8>> = (2..scale.hard_links.saturating_sub(8))
        .map(|number| format!("link-{number:05}").into_bytes())
        .collect();
    // Last, so that they become extended references, with several in one item.
    names.extend(colliding_names(b"extref-", 9));
    let mut links = 1;
    for name in &names {
        match link(&first, &one_dir.join(OsStr::from_bytes(name))) {
            Ok(()) => links += 1,
            // Without EXTREF, the limit is the size of one item.
            Err(error) if error.raw_os_error() == Some(EMLINK) => break,
            Err(error) => return Err(error).at("link", &first),
        }
    }
    // Removes references from the middle of an item.
    for number in (10..60).step_by(7) {
        let path = one_dir.join(format!("link-{number:05}"));
        fs::remove_file(&path).at("remove", &path)?;
        links -= 1;
    }

    let over_dirs = dir.join("over-dirs");
    fs::create_dir(&over_dirs).at("create", &over_dirs)?;
    let file = over_dirs.join("file");
    write(&file, "a name in each directory")?;
    for number in 0..40 {
        let sub = over_dirs.join(format!("dir-{number}"));
        fs::create_dir(&sub).at("create", &sub)?;
        for name in ["a", "b", "same-name"] {
            let path = sub.join(name);
            link(&file, &path).at("link", &path)?;
        }
    }

    // The first name is removed, but the inode has another one.
    let renamed = dir.join("first-name-gone");
    write(&renamed, "still here")?;
    let other = dir.join("other-name");
    link(&renamed, &other).at("link", &other)?;
    fs::remove_file(&renamed).at("remove", &renamed)?;
    Ok(links)
}

const EMLINK: i32 = rustix::io::Errno::MLINK.raw_os_error();

fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)
}
