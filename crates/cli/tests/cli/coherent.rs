//! Programs see in a mount the changes that commands have made, as soon as the commands return.
//!
//! Readers run all the time and read everything that the kernel may have cached: names, listings, contents,
//! attributes.
//! With `UBTRFS_SOAK` set there are more rounds and more ways of mounting.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use rustix::fs::{AtFlags, CWD, Dir, StatxFlags, statx};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::mapped::{MAPPED_BYTES, Mapped};
use crate::mounted::Mounted;
use crate::other_namespace::Elsewhere;
use crate::process::{judge, succeed, ubtrfs};
use crate::switch::SWITCH;

const WAYS: [&str; 6] = [
    "rw,transport=classic",
    "rw,transport=uring",
    "rw,transport=classic,writeback",
    "rw,transport=classic,opens",
    "rw,transport=uring,writeback",
    "rw,transport=uring,opens",
];
const USUAL: usize = 3;
/// Names that commands create and delete.
const NAMES: [&str; 4] = ["current", "kept", "made", "parent"];
const LEN: usize = 10_000;

/// The state after a step: for each name, the content of its file, and whether the directory lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    contents: [Option<u8>; NAMES.len()],
    exists: [bool; NAMES.len()],
}

/// Steps that have begun and ended, and the expected view after each.
#[derive(Default)]
struct Steps {
    begun: AtomicUsize,
    done: AtomicUsize,
    views: Mutex<Vec<View>>,
    is_over: AtomicBool,
    /// Views that were compared.
    compared: AtomicUsize,
}

impl Steps {
    fn view(&self, step: usize) -> View {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)[step].clone()
    }

    /// Does some work, after which readers must see `change`.
    fn step(&self, change: impl FnOnce(&mut View), work: impl FnOnce()) {
        let step = self.done.load(Ordering::SeqCst);
        let mut view = self.view(step);
        change(&mut view);
        self.begun.store(step + 1, Ordering::SeqCst);
        work();
        self.views.lock().unwrap().push(view);
        self.done.store(step + 1, Ordering::SeqCst);
    }

    /// Reads repeatedly. A view read while no step was running must equal the expected one.
    fn watch(&self, by: &str, mut look: impl FnMut() -> io::Result<View>) {
        while !self.is_over.load(Ordering::SeqCst) {
            let done = self.done.load(Ordering::SeqCst);
            let seen = look();
            if self.begun.load(Ordering::SeqCst) == done {
                assert_eq!(seen.unwrap(), self.view(done), "{by}, after step {done}");
                self.compared.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the version of some contents. Returns None for bytes of several versions, or too few bytes.
fn version_of(bytes: &[u8]) -> Option<u8> {
    let first = bytes.first().copied();
    first.filter(|&first| bytes.len() == LEN && bytes.iter().all(|&byte| byte == first))
}

/// Reads by paths below one of the directories where the mount is visible.
fn look_by_path(dir: &Path) -> io::Result<View> {
    let mut view = View::default();
    for (number, name) in NAMES.iter().enumerate() {
        view.exists[number] = dir.join(name).symlink_metadata().is_ok();
        if let Ok(bytes) = fs::read(dir.join(name).join("file")) {
            let version = version_of(&bytes).ok_or(io::ErrorKind::InvalidData)?;
            view.contents[number] = Some(version);
        }
    }
    Ok(view)
}

/// Reads by listing a directory that stays open.
fn look_by_listing(dir: &File, contents: [Option<u8>; NAMES.len()]) -> io::Result<View> {
    let mut exists = [false; NAMES.len()];
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let names = NAMES.iter().zip(&mut exists);
        for (_, is_listed) in
            names.filter(|(name, _)| name.as_bytes() == entry.file_name().to_bytes())
        {
            *is_listed = true;
        }
    }
    Ok(View { contents, exists })
}

/// Asserts that the attributes in the kernel's cache equal those that the server returns.
fn assert_attributes(path: &Path) {
    let ask = |flags| {
        let shown = statx(
            CWD,
            path,
            AtFlags::SYMLINK_NOFOLLOW | flags,
            StatxFlags::ALL,
        )?;
        let times = [shown.stx_mtime, shown.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
        let numbers = (
            shown.stx_ino,
            shown.stx_nlink,
            shown.stx_size,
            shown.stx_blocks,
        );
        Ok::<_, io::Error>((numbers, shown.stx_mode, times))
    };
    let shown = ask(AtFlags::empty()).ok();
    let asked = ask(AtFlags::STATX_FORCE_SYNC).ok();
    assert_eq!(shown, asked, "{}", path.display());
}

/// A bind mount of a directory.
struct Bind(PathBuf);

impl Bind {
    fn new(of: &Mounted) -> Bind {
        let dir = of.dir.with_file_name("bound");
        fs::create_dir_all(&dir).unwrap();
        mount_bind(&of.dir, &dir).unwrap();
        Bind(dir)
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Returns the path of a directory in another namespace.
fn path_in(namespace: &Elsewhere, dir: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", namespace.pid()));
    root.join(dir.strip_prefix("/").unwrap())
}

fn run(words: &[&str], paths: &[PathBuf], rest: &[&str]) {
    let words = words.iter().map(OsString::from);
    let paths = paths.iter().map(|path| path.clone().into_os_string());
    succeed(words.chain(paths).chain(rest.iter().map(OsString::from)));
}

/// Runs one round with everything that commands do to names, contents and attributes.
fn round(steps: &Steps, dir: &Path, version: u8) {
    let at = |name: &str| dir.join(name);
    let quiet = |verb| ["subvolume", verb, "-q"];
    let [current, kept, made, parent] = [0, 1, 2, 3];
    let is_there = |number: usize, contents| {
        move |view: &mut View| {
            view.exists[number] = true;
            view.contents[number] = contents;
        }
    };
    let is_gone = |number: usize| {
        move |view: &mut View| {
            view.exists[number] = false;
            view.contents[number] = None;
        }
    };
    let write = |name: &str, version| {
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(at(name).join("file")).unwrap();
        file.write_all_at(&[version; LEN], 0).unwrap();
    };
    steps.step(is_there(current, Some(version)), || {
        write("current", version)
    });
    steps.step(is_there(kept, Some(version)), || {
        run(&quiet("snapshot"), &[at("current"), at("kept")], &[]);
    });
    steps.step(is_there(current, Some(version + 1)), || {
        write("current", version + 1);
    });
    // Restore the kept snapshot.
    steps.step(is_gone(current), || {
        run(&quiet("delete"), &[at("current")], &[])
    });
    steps.step(is_there(current, Some(version)), || {
        run(&quiet("snapshot"), &[at("kept"), at("current")], &[]);
    });
    steps.step(is_gone(kept), || run(&quiet("delete"), &[at("kept")], &[]));
    steps.step(is_there(made, None), || {
        run(&quiet("create"), &[at("made")], &[])
    });
    steps.step(is_there(parent, None), || {
        run(
            &["subvolume", "create", "-q", "-p"],
            &[at("parent/inner")],
            &[],
        );
    });
    for name in ["made", "current", "parent/inner"] {
        assert_attributes(&at(name));
    }
    steps.step(is_there(made, None), || {
        run(&["property", "set"], &[at("made")], &["ro", "true"]);
    });
    assert!(File::create(at("made/file")).is_err());
    steps.step(is_there(made, None), || {
        run(&["property", "set"], &[at("made")], &["ro", "false"]);
        run(
            &["property", "set"],
            &[at("current/file")],
            &["compression", "zstd"],
        );
        run(&["subvolume", "set-default"], &[at("made")], &[]);
        run(&["subvolume", "set-default", "5"], &[at("")], &[]);
        run(
            &["filesystem", "label"],
            &[at("")],
            &[&format!("round {version}")],
        );
    });
    for name in ["made", "current/file", ""] {
        assert_attributes(&at(name));
    }
    steps.step(is_there(made, Some(version)), || write("made", version));
    // The kernel exchanges the two.
    steps.step(
        |view| view.contents.swap(current, made),
        || {
            fs::rename(at("made"), at("parent/other")).unwrap();
            fs::rename(at("current"), at("made")).unwrap();
            fs::rename(at("parent/other"), at("current")).unwrap();
        },
    );
    steps.step(is_gone(made), || run(&quiet("delete"), &[at("made")], &[]));
    steps.step(is_gone(parent), || {
        run(&quiet("delete"), &[at("parent/inner")], &[]);
        fs::remove_dir(at("parent")).unwrap();
    });
    assert_attributes(dir);
}

/// Versions of contents are three times the round, and must fit into a byte.
const MOST_ROUNDS: u8 = 80;

/// Runs this many rounds, and then more until a reader has compared something.
fn play(mounted: &Mounted, rounds: u8) {
    let dir = &mounted.dir;
    run(&["subvolume", "create", "-q"], &[dir.join("current")], &[]);
    fs::write(dir.join("current/file"), [0; LEN]).unwrap();
    for number in 0..300 {
        fs::write(dir.join(format!("{number:0100}")), b"").unwrap();
    }
    let (bind, namespace) = (Bind::new(mounted), Elsewhere::keeping(dir));
    let steps = Steps::default();
    let mut first = View::default();
    (first.exists[0], first.contents[0]) = (true, Some(0));
    steps.views.lock().unwrap().push(first);
    let open = File::open(dir).unwrap();
    thread::scope(|scope| {
        let places = [dir.clone(), bind.0.clone(), path_in(&namespace, dir)];
        let mut readers: Vec<_> = places
            .into_iter()
            .map(|place| {
                let steps = &steps;
                scope.spawn(move || steps.watch("by path", || look_by_path(&place)))
            })
            .collect();
        readers.push(scope.spawn(|| {
            steps.watch("by listing", || {
                let contents = steps.view(steps.done.load(Ordering::SeqCst)).contents;
                look_by_listing(&open, contents)
            });
        }));
        // The readers must end even if the rounds fail.
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 1..=MOST_ROUNDS {
                let is_enough = steps.compared.load(Ordering::Relaxed) > 0;
                // On a busy machine the readers may run late. A reader that has ended has failed.
                if number > rounds
                    && (is_enough || readers.iter().any(ScopedJoinHandle::is_finished))
                {
                    break;
                }
                round(&steps, dir, 3 * number);
            }
        }));
        steps.is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            if let Err(panic) = reader.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if let Err(panic) = played {
            std::panic::resume_unwind(panic);
        }
    });
    let compared = steps.compared.load(Ordering::Relaxed);
    assert!(compared > 0, "no reader has looked");
    drop((open, bind, namespace));
}

#[test]
fn readers_see_what_commands_have_done_as_soon_as_they_return() {
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    let (ways, rounds) = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => (&WAYS[..], 60),
        None => (&WAYS[..USUAL], 2),
    };
    for way in ways {
        if way.contains("uring") && !Path::new(SWITCH).exists() {
            ubtrfs_sim::skip_optional(format_args!("{way}: no FUSE over io_uring"));
            continue;
        }
        let Some(mounted) = Mounted::new(way, |_| {}) else {
            return;
        };
        println!("{way}");
        play(&mounted, rounds);
        mounted.unmount();
        succeed(["check".as_ref(), "-q".as_ref(), mounted.image.as_os_str()]);
    }
}

/// syncfs(2) reports such a loss to its first caller.
#[test]
fn snapshot_does_not_fail_for_a_store_to_another_file_that_found_no_space() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let at = |name: &str| mounted.dir.join(name);
    for name in ["a", "b"] {
        let create = ["subvolume", "create", "-q"].map(OsString::from);
        succeed(create.into_iter().chain([at(name).into()]));
    }
    let names: Vec<PathBuf> = (0..64).map(|n| at(&format!("a/{n}"))).collect();
    for name in &names {
        let file = File::create(name).unwrap();
        file.set_len(MAPPED_BYTES as u64).unwrap();
    }
    let mut full = File::create(at("full")).unwrap();
    let mut len = 1 << 20;
    while len >= MAPPED_BYTES {
        while full.write_all(&vec![1; len]).is_ok() {}
        len /= 2;
    }
    full.sync_all().unwrap();
    drop(full);
    let mapped: Vec<Mapped> = names.iter().map(|name| Mapped::new(name)).collect();
    mapped.iter().for_each(|mapped| mapped.change(b'1'));
    let snapshot = ["subvolume", "snapshot", "-q"];
    // The first has the kernel write the pages, and does not wait for the answers.
    for name in ["s", "t", "u"] {
        let output = ubtrfs().args(snapshot).args([at("b"), at(name)]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
    }
    let syncs = names.iter().map(|name| File::open(name)?.sync_all());
    let error = syncs.filter_map(io::Result::err).next().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    drop(mapped);
    mounted.unmount();
    judge(&mounted.image);
}
