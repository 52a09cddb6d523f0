//! An archive with history in one file: each run adds a snapshot of a folder.
//!
//! `cargo run -p ubtrfs --example archive -- backup.img FOLDER`: what has not changed since the last run
//! takes no space again.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use ubtrfs::{Access, FileKind, Volume};

const CAPACITY_BYTES: u64 = 64 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let (Some(image), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: archive IMAGE FOLDER".into());
    };
    let volume = match Path::new(&image).exists() {
        true => Volume::open(&image)?,
        false => Volume::create(&image, CAPACITY_BYTES)?,
    };
    if !volume.exists("/current")? {
        volume.create_subvolume("/current")?;
    }
    let changed = update(&volume, Path::new(&folder), Path::new("/current"))?;
    let number = volume.subvolumes()?.len() - 1;
    let name = format!("/version-{number}");
    volume.snapshot("/current", &name, Access::ReadOnly)?;
    volume.sync()?;
    println!("{name}: {changed} files written");
    Ok(())
}

/// Makes `to` what `from` is; returns how many files were written.
fn update(volume: &Volume, from: &Path, to: &Path) -> Result<u64, Box<dyn Error>> {
    let mut changed = 0;
    let mut kept = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            volume.create_dir_all(&target)?;
            changed += update(volume, &entry.path(), &target)?;
        } else if kind.is_file() {
            let content = fs::read(entry.path())?;
            if !volume.exists(&target)? || volume.read(&target)? != content {
                volume.write(&target, content)?;
                changed += 1;
            }
        } else {
            continue;
        }
        kept.push(entry.file_name());
    }
    for entry in volume.read_dir(to)? {
        use std::os::unix::ffi::OsStringExt;
        let name = std::ffi::OsString::from_vec(entry.name);
        if !kept.contains(&name) {
            match entry.kind {
                FileKind::Directory => volume.remove_dir_all(to.join(name))?,
                _ => volume.remove_file(to.join(name))?,
            }
        }
    }
    Ok(changed)
}
