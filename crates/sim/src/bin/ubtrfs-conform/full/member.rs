//! One process of the load: its operations on names, and their frequencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use ubtrfs_sim::Rng;

use super::model::Model;
use super::record::Record;
use super::region::{Done, Region, refused};
use super::{SHARED_BYTES, SHARED_FILES, shared_name, subvolume};

const NAMES: u64 = 24;
const SNAPSHOT: &str = "snapshot";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

struct Member {
    rng: Rng,
    own: PathBuf,
    /// Whether `own` is a subvolume.
    is_subvolume: bool,
    files: Vec<Option<Region>>,
    /// The index of the file of each name.
    names: BTreeMap<u64, usize>,
    links: BTreeMap<u64, u64>,
    dirs: BTreeSet<u64>,
    shared: Vec<Region>,
    /// The files at the time of the snapshot.
    snapshot: Option<Vec<(u64, Model)>>,
    counts: BTreeMap<&'static str, (u64, u64)>,
}

/// Runs one process. It writes its description to a separate folder in `state`.
pub(crate) fn run(mount: &Path, state: &Path, seed: u64, seconds: u64, number: u64) -> Outcome {
    let name = format!("own{number}");
    let own = mount.join(&name);
    let is_subvolume = number.is_multiple_of(8);
    // On a full volume, even this may fail at first.
    let began = Instant::now();
    loop {
        let made = if is_subvolume {
            subvolume::create(mount, &name)
        } else {
            fs::create_dir(&own)
        };
        if refused(made)?.is_some() {
            break;
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("{name}: no space for a directory in a minute").into());
        }
    }
    let shared = (0..SHARED_FILES).map(|shared| {
        let path = mount.join(shared_name(shared));
        let mut model = Model::default();
        model.resize(SHARED_BYTES);
        Region::new(path, Some(number * SHARED_BYTES), model)
    });
    let mut member = Member {
        rng: Rng::new(seed),
        own,
        is_subvolume,
        files: Vec::new(),
        names: BTreeMap::new(),
        links: BTreeMap::new(),
        dirs: BTreeSet::new(),
        shared: shared.collect(),
        snapshot: None,
        counts: BTreeMap::new(),
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for _ in 0..20 {
            member.act()?;
        }
        member.check_some()?;
    }
    member.finish(&state.join(&name), &name)?;
    let (done, refused) = member
        .counts
        .values()
        .fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    println!("member {number}: {done} operations, {refused} of them without space");
    if number == 0 {
        println!("member {number}: {:?}", member.counts);
    }
    Ok(())
}

impl Member {
    fn path(&self, name: u64) -> PathBuf {
        self.own.join(format!("n{name}"))
    }

    fn free_name(&mut self) -> Option<u64> {
        let name = self.rng.below(NAMES);
        let taken = self.names.contains_key(&name)
            || self.links.contains_key(&name)
            || self.dirs.contains(&name);
        (!taken).then_some(name)
    }

    fn any_file(&mut self) -> Option<(u64, usize)> {
        let count = self.names.len() as u64;
        let nth = self.rng.below(count.max(1)) as usize;
        self.names
            .iter()
            .nth(nth)
            .map(|(&name, &file)| (name, file))
    }

    fn count(&mut self, what: &'static str, done: Done) {
        let count = self.counts.entry(what).or_default();
        count.0 += u64::from(done != Done::No);
        count.1 += u64::from(done == Done::Refused);
    }

    fn act(&mut self) -> Outcome {
        match self.rng.below(20) {
            0..=10 => self.act_on_contents(),
            11 | 12 => self.act_on_shared(),
            13 => self.create(),
            14..=17 => self.act_on_names(),
            18 => self.sync(),
            _ => self.act_on_snapshot(),
        }
    }

    /// Changes a file and checks it.
    fn act_on_contents(&mut self) -> Outcome {
        let (Some((name, file)), Some((from, other))) = (self.any_file(), self.any_file()) else {
            return self.create();
        };
        let from = self.path(from);
        if let Some(other) = &mut self.files[other] {
            other.path = from;
        }
        let Some(mut region) = self.files[file].take() else {
            return Err("a name without a file".into());
        };
        region.path = self.path(name);
        let rng = &mut self.rng;
        let (what, done) = match rng.below(24) {
            0..=5 => ("write", region.write(rng, false)),
            6..=8 => ("append", region.append(rng)),
            9..=12 => ("direct write", region.write(rng, true)),
            13 => ("store", region.store(rng)),
            14 | 15 => ("truncate", region.truncate(rng)),
            16 | 17 => ("reserve", region.reserve(rng)),
            18 | 19 => ("clear", region.clear(rng)),
            20 | 21 => match &self.files[other] {
                Some(from) => ("copy", region.copy_from(from, rng)),
                None => ("copy", Ok(Done::No)),
            },
            _ => ("fsync", region.sync()),
        };
        let checked = match &done {
            Ok(Done::Refused) => region.check(&mut self.rng),
            Ok(_) if self.rng.one_in(2) => region.check(&mut self.rng),
            _ => Ok(()),
        };
        self.files[file] = Some(region);
        let done = done.map_err(|error| format!("{what}: {error}"))?;
        self.count(what, done);
        checked.map_err(|error| format!("after {what}, {done:?}: {error}").into())
    }

    fn act_on_shared(&mut self) -> Outcome {
        let nth = self.rng.below(self.shared.len() as u64) as usize;
        let (region, rng) = (&mut self.shared[nth], &mut self.rng);
        let (what, done) = match rng.below(10) {
            0..=2 => ("shared write", region.write(rng, false)),
            3..=5 => ("shared direct write", region.write(rng, true)),
            6 => ("shared store", region.store(rng)),
            7 => ("shared reserve", region.reserve(rng)),
            8 => ("shared clear", region.clear(rng)),
            _ => ("shared fsync", region.sync()),
        };
        let done = done.map_err(|error| format!("{what}: {error}"))?;
        let checked = self.shared[nth].check(&mut self.rng);
        self.count(what, done);
        checked.map_err(|error| format!("after {what}, {done:?}: {error}").into())
    }

    fn create(&mut self) -> Outcome {
        let Some(name) = self.free_name() else {
            return Ok(());
        };
        let path = self.path(name);
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let made = refused(made).map_err(|error| format!("create: {error}"))?;
        self.count("create", done(&made));
        let Some(file) = made else {
            return Ok(());
        };
        if self.rng.one_in(3) {
            // Without space for the flag, the file stays unchanged.
            let _ = refused(subvolume::set_nocow(&file))?;
        }
        self.names.insert(name, self.files.len());
        let region = Region::new(path, None, Model::default());
        self.files.push(Some(region));
        Ok(())
    }

    fn act_on_names(&mut self) -> Outcome {
        match self.rng.below(12) {
            0..=2 => self.unlink(),
            3 | 4 => self.rename(),
            5 => self.exchange(),
            6 => self.link(),
            7 => self.symlink(),
            8 | 9 => self.directory(),
            10 => self.remove_link(),
            _ => self.set_xattr(),
        }
    }

    fn try_name(&mut self, what: &'static str, outcome: io::Result<()>) -> Outcome<bool> {
        let outcome = refused(outcome).map_err(|error| format!("{what}: {error}"))?;
        self.count(what, done(&outcome));
        Ok(outcome.is_some())
    }

    /// PRESSURE-3
    fn free(&mut self, what: &'static str, outcome: io::Result<()>) -> Outcome {
        outcome.map_err(|error| format!("{what}: {error}"))?;
        self.count(what, Done::Yes);
        Ok(())
    }

    fn drop_name(&mut self, name: u64) {
        if let Some(file) = self.names.remove(&name)
            && !self.names.values().any(|other| *other == file)
        {
            self.files[file] = None;
        }
    }

    fn unlink(&mut self) -> Outcome {
        let Some((name, _)) = self.any_file() else {
            return Ok(());
        };
        // Keeps the volume full.
        if (self.names.len() as u64) < NAMES / 2 && !self.rng.one_in(4) {
            return Ok(());
        }
        let outcome = fs::remove_file(self.path(name));
        self.free("unlink", outcome)?;
        self.drop_name(name);
        Ok(())
    }

    fn rename(&mut self) -> Outcome {
        let (Some((name, file)), Some((other, of_other))) = (self.any_file(), self.any_file())
        else {
            return Ok(());
        };
        let target = self.free_name().unwrap_or(other);
        let outcome = fs::rename(self.path(name), self.path(target));
        // Renaming onto another name of the same file keeps both names.
        let stays = target == other && file == of_other;
        if self.try_name("rename", outcome)? && !stays {
            self.drop_name(target);
            self.names.remove(&name);
            self.names.insert(target, file);
        }
        Ok(())
    }

    fn exchange(&mut self) -> Outcome {
        let (Some((name, file)), Some((other, of_other))) = (self.any_file(), self.any_file())
        else {
            return Ok(());
        };
        let (path, other_path) = (self.path(name), self.path(other));
        let moved = renameat_with(CWD, &path, CWD, &other_path, RenameFlags::EXCHANGE);
        if self.try_name("exchange", moved.map_err(io::Error::from))? {
            self.names.insert(name, of_other);
            self.names.insert(other, file);
        }
        Ok(())
    }

    fn link(&mut self) -> Outcome {
        let (Some((name, file)), Some(new)) = (self.any_file(), self.free_name()) else {
            return Ok(());
        };
        let outcome = fs::hard_link(self.path(name), self.path(new));
        if self.try_name("link", outcome)? {
            self.names.insert(new, file);
        }
        Ok(())
    }

    fn symlink(&mut self) -> Outcome {
        let Some(new) = self.free_name() else {
            return Ok(());
        };
        let target = self.rng.next_u64();
        let outcome = symlink(target.to_string(), self.path(new));
        if self.try_name("symlink", outcome)? {
            self.links.insert(new, target);
        }
        Ok(())
    }

    fn remove_link(&mut self) -> Outcome {
        if let Some((&name, _)) = self.links.first_key_value() {
            let outcome = fs::remove_file(self.path(name));
            self.free("unlink", outcome)?;
            self.links.remove(&name);
        }
        Ok(())
    }

    fn directory(&mut self) -> Outcome {
        if let Some(&name) = self.dirs.first()
            && self.rng.one_in(2)
        {
            let outcome = fs::remove_dir(self.path(name));
            self.free("rmdir", outcome)?;
            self.dirs.remove(&name);
            return Ok(());
        }
        if let Some(new) = self.free_name() {
            let outcome = fs::create_dir(self.path(new));
            if self.try_name("mkdir", outcome)? {
                self.dirs.insert(new);
            }
        }
        Ok(())
    }

    fn set_xattr(&mut self) -> Outcome {
        let Some((name, _)) = self.any_file() else {
            return Ok(());
        };
        let value = vec![name as u8; 1 + self.rng.below(2000) as usize];
        let outcome = xattr::set(self.path(name), "user.load", &value);
        if self.try_name("xattr", outcome)? {
            let found = xattr::get(self.path(name), "user.load")?;
            if found.as_ref() != Some(&value) {
                return Err("xattr: not what was set".into());
            }
        }
        Ok(())
    }

    /// Syncs everything. Errors are ignored, because they may be about lost stores of other processes.
    fn sync(&mut self) -> Outcome {
        let _ = syncfs(File::open(&self.own)?);
        self.count("sync", Done::Yes);
        Ok(())
    }

    /// Creates a snapshot, checks the existing one, or deletes it.
    fn act_on_snapshot(&mut self) -> Outcome {
        if !self.is_subvolume || !self.rng.one_in(3) {
            return Ok(());
        }
        if let Some(kept) = &self.snapshot {
            let path = self.own.join(SNAPSHOT);
            for (name, model) in kept {
                let found = fs::read(path.join(format!("n{name}")))?;
                let wrong = model.first_wrong(0, &found);
                if wrong.is_some() || found.len() as u64 != model.len() {
                    return Err(format!("n{name} of a snapshot: wrong from {wrong:?}").into());
                }
            }
            if self.rng.one_in(2) {
                let outcome = subvolume::delete(&self.own, SNAPSHOT);
                self.free("delete of a snapshot", outcome)?;
                self.snapshot = None;
            }
            return Ok(());
        }
        let outcome = subvolume::snapshot(&self.own, &self.own, SNAPSHOT);
        if self.try_name("snapshot", outcome)? {
            let file = |(&name, &file): (&u64, &usize)| {
                self.files[file].as_ref().map(|of| (name, of.model.clone()))
            };
            self.snapshot = Some(self.names.iter().filter_map(file).collect());
        }
        Ok(())
    }

    fn check_some(&mut self) -> Outcome {
        for _ in 0..3 {
            if let Some((name, file)) = self.any_file()
                && let Some(region) = &mut self.files[file]
            {
                region.path = self.own.join(format!("n{name}"));
                let checked = region.check(&mut self.rng);
                checked.map_err(|error| format!("later: {error}"))?;
            }
        }
        let nth = self.rng.below(self.shared.len() as u64) as usize;
        let checked = self.shared[nth].check(&mut self.rng);
        checked.map_err(|error| format!("later: {error}").into())
    }

    /// Checks everything and writes the description.
    fn finish(&mut self, state: &Path, own: &str) -> Outcome {
        fs::create_dir_all(state)?;
        if self.snapshot.take().is_some() {
            subvolume::delete(&self.own, SNAPSHOT)?;
        }
        let mut record = Record::default();
        for (name, &file) in &self.names {
            if let Some(region) = &mut self.files[file] {
                region.path = self.own.join(format!("n{name}"));
                region.check(&mut self.rng)?;
                record.file(state, &format!("{own}/n{name}"), None, &region.model)?;
            }
        }
        for (number, region) in self.shared.iter().enumerate() {
            region.check(&mut self.rng)?;
            let name = shared_name(number as u64);
            record.file(state, &name, region.base, &region.model)?;
        }
        for (name, target) in &self.links {
            record.link(&format!("{own}/n{name}"), &target.to_string());
        }
        for name in &self.dirs {
            record.dir(&format!("{own}/n{name}"), 0);
        }
        let entries = self.names.len() + self.links.len() + self.dirs.len();
        record.dir(own, entries);
        Ok(record.finish(state)?)
    }
}

fn done<T>(outcome: &Option<T>) -> Done {
    match outcome {
        Some(_) => Done::Yes,
        None => Done::Refused,
    }
}
