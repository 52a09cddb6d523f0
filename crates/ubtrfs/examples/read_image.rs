//! A reader of disk images: lists every path of a btrfs image with its size, without a mount.
//!
//! `cargo run -p ubtrfs --example read_image -- disk.img`

use std::error::Error;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::{env, io};

use ubtrfs::Volume;

fn main() -> Result<(), Box<dyn Error>> {
    let image = env::args_os().nth(1).ok_or("usage: read_image IMAGE")?;
    let volume = Volume::open_read_only(image)?;
    let mut out = io::stdout().lock();
    let mut pending = vec![PathBuf::from("/")];
    while let Some(dir) = pending.pop() {
        for entry in volume.root().read_dir(&dir)? {
            let entry = entry?;
            write!(out, "{:>12} ", entry.metadata()?.len())?;
            out.write_all(entry.path().as_os_str().as_bytes())?;
            writeln!(out)?;
            if entry.file_type().is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(())
}
