//! An archive with history in one file: each run adds a snapshot of a folder.
//!
//! `cargo run -p ubtrfs --example archive -- backup.img FOLDER`: files that have not changed since the last run take no
//! additional space.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use ubtrfs::{Access, Subvolume, Volume};

const CAPACITY_BYTES: u64 = 64 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let (Some(image), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: archive IMAGE FOLDER".into());
    };
    let volume = if Path::new(&image).exists() {
        Volume::open(&image)?
    } else {
        Volume::create(&image, CAPACITY_BYTES)?
    };
    let current = if volume.root().exists("/current")? {
        volume.root().subvolume("/current")?
    } else {
        volume.root().create_subvolume("/current")?
    };
    let changed = update(&current, Path::new(&folder), Path::new("/"))?;
    let number = volume.subvolumes()?.len() - 1;
    let name = format!("/version-{number}");
    volume
        .root()
        .snapshot("/current", &name, Access::ReadOnly)?;
    volume.close()?;
    println!("{name}: {changed} files written");
    Ok(())
}

/// Copies the differences from `from` to `to`, and returns the number of files written.
fn update(current: &Subvolume, from: &Path, to: &Path) -> Result<u64, Box<dyn Error>> {
    let mut changed = 0;
    let mut kept = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            current.create_dir_all(&target)?;
            changed += update(current, &entry.path(), &target)?;
        } else if kind.is_file() {
            let content = fs::read(entry.path())?;
            if !current.exists(&target)? || current.read(&target)? != content {
                current.write(&target, content)?;
                changed += 1;
            }
        } else {
            continue;
        }
        kept.push(entry.file_name());
    }
    for entry in current.read_dir(to)? {
        let entry = entry?;
        if !kept.contains(&entry.file_name()) {
            if entry.file_type().is_dir() {
                current.remove_dir_all(entry.path())?
            } else {
                current.remove_file(entry.path())?
            }
        }
    }
    Ok(changed)
}
