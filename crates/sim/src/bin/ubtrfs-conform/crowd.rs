//! Many processes that run all operations on names, concurrently in one small tree and separately in trees of their
//! own.
//!
//! In the common tree, anything may happen between two calls. An operation may only fail in ways that are possible if
//! the names have just changed. A file read there must be complete: writers create files under private names and move
//! them in. In its own tree a process knows all files, and everything is compared. At the end, everything must be
//! removable.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use ubtrfs_sim::Rng;

use super::Outcome;

const COMMON: &str = "common";
const COMMON_DIRS: u64 = 3;
const COMMON_NAMES: u64 = 6;
const OWN_NAMES: u64 = 40;
const LEAST_BYTES: u64 = 16;
const MOST_BYTES: u64 = 40_000;

/// Possible errors of a call on a name that others change.
const RACES: &[Errno] = &[
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::NOTEMPTY,
    Errno::INVAL,
    Errno::LOOP,
    Errno::PERM,
    Errno::NODATA,
    Errno::NXIO,
];

pub(super) fn run(dir: &Path, seed: u64, seconds: u64, processes: u64) -> Outcome {
    let common = dir.join(COMMON);
    for number in 0..COMMON_DIRS {
        fs::create_dir_all(common.join(format!("d{number}")))?;
    }
    let members: io::Result<Vec<_>> = (0..processes)
        .map(|number| {
            let words = [seed + number, seconds, number].map(|word| word.to_string());
            Command::new("/proc/self/exe")
                .arg("crowd-member")
                .arg(dir)
                .args(words)
                .spawn()
        })
        .collect();
    let mut failed = 0;
    for mut member in members? {
        failed += u32::from(!member.wait()?.success());
    }
    if failed > 0 {
        return Err(format!("{failed} members failed, seed {seed}").into());
    }
    check_links(dir)?;
    remove(&common)?;
    Ok(())
}

/// Checks that each file's link count equals the number of its names.
fn check_links(dir: &Path) -> Outcome {
    let mut found: BTreeMap<u64, (u64, u64, PathBuf)> = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let about = fs::symlink_metadata(&path)?;
            if about.is_dir() {
                dirs.push(path);
                continue;
            }
            let of = found.entry(about.ino()).or_insert((0, about.nlink(), path));
            of.0 += 1;
        }
    }
    match found.values().find(|(names, nlink, _)| names != nlink) {
        None => Ok(()),
        Some((names, nlink, path)) => {
            Err(format!("{}: {nlink} links, {names} names", path.display()).into())
        }
    }
}

/// Removes a directory recursively, name by name as listed.
fn remove(dir: &Path) -> Outcome {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let said = |error| format!("{}: {error}", path.display());
        if entry.file_type()?.is_dir() {
            remove(&path)?;
        } else {
            fs::remove_file(&path).map_err(said)?;
        }
    }
    fs::remove_dir(dir).map_err(|error| format!("{}: {error}", dir.display()).into())
}

struct Member {
    rng: Rng,
    number: u64,
    common: PathBuf,
    own: PathBuf,
    /// For each name in `own`: the seed and length of its contents.
    files: BTreeMap<u64, (u64, u64)>,
    done: u64,
}

pub(super) fn member(dir: &Path, seed: u64, seconds: u64, number: u64) -> Outcome {
    let own = dir.join(format!("own{number}"));
    fs::create_dir_all(&own)?;
    let mut member = Member {
        rng: Rng::new(seed),
        number,
        common: dir.join(COMMON),
        own,
        files: BTreeMap::new(),
        done: 0,
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for _ in 0..50 {
            member.act()?;
        }
        member.check_own()?;
    }
    println!("member {number}: {} operations", member.done);
    Ok(())
}

/// Returns bytes derived from a seed, which they start with.
fn contents(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Rng::new(seed).fill(&mut bytes);
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// Checks that these are the complete bytes of some writer.
fn check_whole(path: &Path, bytes: &[u8]) -> Outcome {
    let word = |at: usize| {
        let word = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let (Some(seed), Some(len)) = (word(0), word(8)) else {
        return Err(format!("{}: {} bytes", path.display(), bytes.len()).into());
    };
    if len != bytes.len() as u64 || contents(seed, len) != bytes {
        return Err(format!("{}: not what was written", path.display()).into());
    }
    Ok(())
}

/// Returns None for an error that concurrent calls may cause.
fn raced<T>(what: &str, outcome: io::Result<T>) -> Result<Option<T>, Box<dyn std::error::Error>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_race(&error) => Ok(None),
        Err(error) => Err(format!("{what}: {error}").into()),
    }
}

fn is_race(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|raw| RACES.iter().any(|race| race.raw_os_error() == raw))
}

impl Member {
    fn act(&mut self) -> Outcome {
        self.done += 1;
        match self.rng.below(3) {
            0 => self.act_alone(),
            _ => self.act_in_common(),
        }
    }

    fn common_path(&mut self) -> PathBuf {
        let mut path = self.common.clone();
        for _ in 0..1 + self.rng.below(2) {
            path.push(format!("d{}", self.rng.below(COMMON_DIRS)));
        }
        path.push(format!("n{}", self.rng.below(COMMON_NAMES)));
        path
    }

    fn write_new(&mut self, path: &Path) -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let seed = self.rng.next_u64();
        let len = LEAST_BYTES + self.rng.below(MOST_BYTES - LEAST_BYTES);
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(&contents(seed, len))?;
        if self.rng.one_in(20) {
            file.sync_all()?;
        }
        Ok((seed, len))
    }

    fn act_in_common(&mut self) -> Outcome {
        let path = self.common_path();
        let other = self.common_path();
        match self.rng.below(16) {
            0..=2 => {
                let fresh = self.own.join("fresh");
                self.write_new(&fresh)?;
                let moved = match self.rng.below(2) {
                    0 => fs::rename(&fresh, &path),
                    _ => fs::hard_link(&fresh, &path),
                };
                raced("put", moved)?;
                let _ = fs::remove_file(&fresh);
            }
            3 | 4 => {
                if let Some(mut file) = raced("open", File::open(&path))?
                    && file.metadata()?.is_file()
                {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes)?;
                    check_whole(&path, &bytes)?;
                }
            }
            5 | 6 => drop(raced("rename", fs::rename(&path, &other))?),
            7 => {
                let moved = renameat_with(CWD, &path, CWD, &other, RenameFlags::EXCHANGE);
                raced("exchange", moved.map_err(io::Error::from))?;
            }
            8 => {
                let moved = renameat_with(CWD, &path, CWD, &other, RenameFlags::NOREPLACE);
                raced("move", moved.map_err(io::Error::from))?;
            }
            9 => drop(raced("link", fs::hard_link(&path, &other))?),
            10 => drop(raced("unlink", fs::remove_file(&path))?),
            11 => {
                let dir = path
                    .parent()
                    .unwrap_or(&path)
                    .join(format!("d{}", self.rng.below(COMMON_DIRS)));
                match self.rng.below(2) {
                    0 => drop(raced("mkdir", fs::create_dir(dir))?),
                    _ => drop(raced("rmdir", fs::remove_dir(dir))?),
                }
            }
            12 => drop(raced(
                "symlink",
                symlink(format!("n{}", self.number), &path),
            )?),
            13 => {
                if let Some(names) = raced("list", fs::read_dir(path.parent().unwrap_or(&path)))? {
                    let mut seen = Vec::new();
                    for entry in names {
                        seen.push(entry?.file_name());
                    }
                    let count = seen.len();
                    seen.sort();
                    seen.dedup();
                    // A name that is being moved may be listed under both names, other names only once.
                    if seen.len() != count {
                        return Err(format!("{}: a name listed twice", path.display()).into());
                    }
                }
            }
            14 => {
                let mode = fs::Permissions::from_mode(0o600 + self.rng.below(64) as u32);
                raced("chmod", fs::set_permissions(&path, mode))?;
            }
            _ => drop(raced(
                "xattr",
                xattr::set(&path, "user.of", &self.number.to_le_bytes()),
            )?),
        }
        Ok(())
    }

    fn act_alone(&mut self) -> Outcome {
        let (name, other) = (self.rng.below(OWN_NAMES), self.rng.below(OWN_NAMES));
        let [path, other_path] = [name, other].map(|name| self.own.join(format!("f{name}")));
        let is_there = self.files.contains_key(&name);
        match self.rng.below(4) {
            0 if !is_there => {
                let made = self.write_new(&path)?;
                self.files.insert(name, made);
            }
            1 if is_there => {
                fs::remove_file(&path)?;
                self.files.remove(&name);
            }
            2 if is_there && name != other => {
                // Renaming onto another name of the same file keeps both names.
                let is_same = self.files.get(&name) == self.files.get(&other);
                fs::rename(&path, &other_path)?;
                if !is_same && let Some(file) = self.files.remove(&name) {
                    self.files.insert(other, file);
                }
            }
            3 if is_there && !self.files.contains_key(&other) => {
                fs::hard_link(&path, &other_path)?;
                let file = self.files[&name];
                self.files.insert(other, file);
            }
            _ => {
                let found = fs::read(&path).ok();
                let wanted = self
                    .files
                    .get(&name)
                    .map(|&(seed, len)| contents(seed, len));
                if found != wanted {
                    return Err(format!("{}: not what was written", path.display()).into());
                }
            }
        }
        Ok(())
    }

    fn check_own(&self) -> Outcome {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.own)? {
            listed.push(entry?.file_name().to_string_lossy().into_owned());
        }
        listed.sort();
        let mut known: Vec<_> = self.files.keys().map(|name| format!("f{name}")).collect();
        known.sort();
        if listed != known {
            return Err(format!("{}: {listed:?}, not {known:?}", self.own.display()).into());
        }
        for (name, file) in &self.files {
            let path = self.own.join(format!("f{name}"));
            let links = self.files.values().filter(|of| *of == file).count() as u64;
            let about = fs::metadata(&path)?;
            if (about.nlink(), about.len()) != (links, file.1) {
                let shown = (about.nlink(), about.len());
                return Err(format!("{}: {shown:?}, not {links} links", path.display()).into());
            }
            if fs::read(&path)? != contents(file.0, file.1) {
                return Err(format!("{}: not what was written", path.display()).into());
            }
        }
        Ok(())
    }
}
