//! A reader of disk images: lists every path of a btrfs image with its size, without a mount.
//!
//! `cargo run -p ubtrfs --example read_image -- disk.img`

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use ubtrfs::{FileKind, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let image = env::args_os().nth(1).ok_or("usage: read_image IMAGE")?;
    let volume = Volume::open_read_only(image)?;
    let mut out = io::stdout().lock();
    let mut pending = vec![PathBuf::from("/")];
    while let Some(dir) = pending.pop() {
        for entry in volume.read_dir(&dir)? {
            let path: &Path = &dir.join(OsStr::from_bytes(&entry.name));
            let size = volume.symlink_metadata(path)?.size;
            write!(out, "{size:>12} ")?;
            out.write_all(path.as_os_str().as_bytes())?;
            writeln!(out)?;
            if entry.kind == FileKind::Directory {
                pending.push(path.to_owned());
            }
        }
    }
    Ok(())
}
