//! Calls by path have the same results, and leave the same files, as the calls of `std::fs` on this machine.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

use ubtrfs::{DirBuilder, FileTimes, OpenOptions, Subvolume, Volume};

const VOLUME_BYTES: u64 = 256 << 20;

/// All paths, with the content of files and the target of links.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// The calls to compare.
trait Place {
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
    fn write(&self, path: &str, content: &[u8]) -> io::Result<()>;
    fn open(&self, path: &str) -> io::Result<()>;
    fn create_dir(&self, path: &str) -> io::Result<()>;
    fn create_dir_all(&self, path: &str) -> io::Result<()>;
    fn remove_file(&self, path: &str) -> io::Result<()>;
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    fn remove_dir_all(&self, path: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn hard_link(&self, file: &str, link: &str) -> io::Result<()>;
    fn symlink(&self, target: &str, link: &str) -> io::Result<()>;
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>>;
    fn is_dir(&self, path: &str, follow: bool) -> io::Result<bool>;
    fn exists(&self, path: &str) -> io::Result<bool>;
    fn names(&self, path: &str) -> io::Result<Vec<Vec<u8>>>;
    fn copy(&self, from: &str, to: &str) -> io::Result<u64>;
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf>;
    /// Opens with the options in `letters`, writes "new", and reads everything. Returns the result of each step.
    fn open_as(&self, path: &str, letters: &str) -> io::Result<Tried>;
}

/// The results of writing to a file and of reading it.
type Tried = (Result<(), ErrorKind>, Result<Vec<u8>, ErrorKind>);

fn try_both(mut file: impl Read + Write) -> Tried {
    let written = file.write_all(b"new").map_err(|error| error.kind());
    let mut content = Vec::new();
    let read = file.read_to_end(&mut content);
    (written, read.map(|_| content).map_err(|error| error.kind()))
}

macro_rules! options {
    ($options:expr, $letters:expr) => {{
        let has = |letter| $letters.contains(letter);
        $options
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .truncate(has('t'))
            .create(has('c'))
            .create_new(has('n'))
    }};
}

/// The working directory, which is also the root for absolute paths.
struct Host(PathBuf);

impl Host {
    fn at(&self, path: &str) -> PathBuf {
        match path.strip_prefix('/') {
            Some(below) => PathBuf::from(format!("{}/{below}", self.0.display())),
            None => PathBuf::from(path),
        }
    }
}

impl Place for Host {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.at(path))
    }
    fn write(&self, path: &str, content: &[u8]) -> io::Result<()> {
        fs::write(self.at(path), content)
    }
    fn open(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.at(path)).map(drop)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }
    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.at(path))
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }
    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        fs::remove_dir_all(self.at(path))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }
    fn hard_link(&self, file: &str, link: &str) -> io::Result<()> {
        fs::hard_link(self.at(file), self.at(link))
    }
    fn symlink(&self, target: &str, link: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(self.at(target), self.at(link))
    }
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>> {
        let target = fs::read_link(self.at(path))?;
        let target = target.as_os_str().as_bytes();
        let root = self.0.as_os_str().as_bytes();
        Ok(target.strip_prefix(root).unwrap_or(target).to_vec())
    }
    fn is_dir(&self, path: &str, follow: bool) -> io::Result<bool> {
        let metadata = if follow {
            fs::metadata(self.at(path))
        } else {
            fs::symlink_metadata(self.at(path))
        };
        metadata.map(|metadata| metadata.is_dir())
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.at(path).try_exists()
    }
    fn names(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        let entries = fs::read_dir(self.at(path))?;
        let names = entries.map(|entry| Ok(entry?.file_name().as_bytes().to_vec()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
    fn copy(&self, from: &str, to: &str) -> io::Result<u64> {
        fs::copy(self.at(from), self.at(to))
    }
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf> {
        let path = fs::canonicalize(self.at(path))?;
        let below = path.strip_prefix(&self.0).expect("it leads nowhere else");
        Ok(Path::new("/").join(below))
    }
    fn open_as(&self, path: &str, letters: &str) -> io::Result<Tried> {
        let mut options = fs::OpenOptions::new();
        let options = options!(options, letters);
        Ok(try_both(options.open(self.at(path))?))
    }
}

impl Place for Subvolume {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(Subvolume::read(self, path)?)
    }
    fn write(&self, path: &str, content: &[u8]) -> io::Result<()> {
        Ok(Subvolume::write(self, path, content)?)
    }
    fn open(&self, path: &str) -> io::Result<()> {
        Ok(self.open_file(path).map(drop)?)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        Ok(Subvolume::create_dir(self, path)?)
    }
    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        Ok(Subvolume::create_dir_all(self, path)?)
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        Ok(Subvolume::remove_file(self, path)?)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(Subvolume::remove_dir(self, path)?)
    }
    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        Ok(Subvolume::remove_dir_all(self, path)?)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(Subvolume::rename(self, from, to)?)
    }
    fn hard_link(&self, file: &str, link: &str) -> io::Result<()> {
        Ok(Subvolume::hard_link(self, file, link)?)
    }
    fn symlink(&self, target: &str, link: &str) -> io::Result<()> {
        Ok(Subvolume::symlink(self, target, link)?)
    }
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(Subvolume::read_link(self, path)?
            .into_os_string()
            .into_vec())
    }
    fn is_dir(&self, path: &str, follow: bool) -> io::Result<bool> {
        let metadata = if follow {
            self.metadata(path)?
        } else {
            self.symlink_metadata(path)?
        };
        Ok(metadata.is_dir())
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(Subvolume::exists(self, path)?)
    }
    fn names(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        let entries = self.read_dir(path)?;
        let names = entries.map(|entry| Ok(entry?.file_name().as_bytes().to_vec()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
    fn copy(&self, from: &str, to: &str) -> io::Result<u64> {
        Ok(Subvolume::copy(self, from, to)?)
    }
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf> {
        Ok(Subvolume::canonicalize(self, path)?)
    }
    fn open_as(&self, path: &str, letters: &str) -> io::Result<Tried> {
        let options = options!(OpenOptions::new(), letters);
        Ok(try_both(self.open_with(path, &options)?))
    }
}

fn fill(place: &dyn Place) -> io::Result<()> {
    place.write("file", b"content")?;
    place.write("other", b"other content")?;
    place.create_dir("empty")?;
    place.create_dir_all("dir/sub")?;
    place.write("dir/file", b"below")?;
    place.hard_link("file", "hard")?;
    for (target, link) in [
        ("file", "to_file"),
        ("dir", "to_dir"),
        ("dir/", "to_dir_slash"),
        ("file/", "to_file_slash"),
        ("../other", "dir/up"),
        ("made", "dangling"),
        ("/made", "dangling_absolute"),
        ("made/", "dangling_slash"),
        ("dir/again", "twice"),
        ("made_below", "dir/again"),
        ("none/below", "lost"),
        ("file/below", "through_file"),
        ("loop", "loop"),
    ] {
        place.symlink(target, link)?;
    }
    Ok(())
}

fn tree(place: &dyn Place, dir: &str, found: &mut Tree) {
    for name in place.names(dir).unwrap() {
        let name = String::from_utf8(name).unwrap();
        let path = format!("{dir}/{name}");
        let content = match place.read_link(&path) {
            Ok(target) => target,
            Err(_) if place.is_dir(&path, false).unwrap() => {
                tree(place, &path, found);
                Vec::new()
            }
            Err(_) => place.read(&path).unwrap(),
        };
        found.insert(PathBuf::from(path), content);
    }
}

fn whole(place: &dyn Place) -> Tree {
    let mut found = Tree::new();
    tree(place, ".", &mut found);
    found
}

/// A tree that is created both on the host and in a volume.
struct Pair {
    host: Host,
    root: Subvolume,
    before: Tree,
}

/// Runs a call on both trees and reports differences.
struct Judge {
    scratch: tempfile::TempDir,
    /// None after a call has changed it.
    pair: Option<Pair>,
    cases: usize,
    differences: Vec<String>,
}

impl Judge {
    fn compare<T: Debug + PartialEq>(
        &mut self,
        call: &str,
        run: impl Fn(&dyn Place) -> io::Result<T>,
    ) {
        self.cases += 1;
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => self.new_pair(),
        };
        let outcome = |place: &dyn Place| run(place).map_err(|error| error.kind());
        let (theirs, ours) = (outcome(&pair.host), outcome(&pair.root));
        let (their_tree, our_tree) = (whole(&pair.host), whole(&pair.root));
        if theirs != ours {
            let difference = format!("{call}: std::fs {theirs:?}, here {ours:?}");
            self.differences.push(difference);
        } else if their_tree != our_tree {
            let difference = format!("{call}: std::fs leaves {their_tree:?}, here {our_tree:?}");
            self.differences.push(difference);
        }
        if their_tree == pair.before && our_tree == pair.before {
            self.pair = Some(pair);
        }
    }

    fn new_pair(&self) -> Pair {
        let root = self.scratch.path().join(self.cases.to_string());
        fs::create_dir(&root).unwrap();
        env::set_current_dir(&root).unwrap();
        let host = Host(root);
        let root = Volume::in_memory(VOLUME_BYTES).unwrap().root().clone();
        fill(&host).unwrap();
        fill(&root).unwrap();
        let before = whole(&host);
        Pair { host, root, before }
    }
}

/// Combinations of open options: read, write, append, truncate, create, create new.
const OPENINGS: &[&str] = &[
    "", "r", "w", "a", "t", "rw", "ra", "at", "rc", "wct", "rwc", "wn", "actn",
];

/// Paths that lead to the same file.
const IS_FILE: &[&str] = &[
    "file",
    "/file",
    "//file",
    "./file",
    "dir/../file",
    "to_file",
];

/// A single test, because the working directory belongs to the process.
///
/// PATHS-1, LOOKUP-1 and LOOKUP-2
#[test]
fn calls_by_paths_are_as_in_std_fs() {
    let mut judge = Judge {
        scratch: tempfile::tempdir().unwrap(),
        pair: None,
        cases: 0,
        differences: Vec::new(),
    };
    let long = "x".repeat(256);
    let below_long = format!("{long}/y");
    let paths = [
        "",
        ".",
        "./",
        "file",
        "file/",
        "file/.",
        "file/..",
        "file/x",
        "/file",
        "//file",
        "./file",
        "dir",
        "dir/",
        "dir//",
        "dir/.",
        "dir/./",
        "dir/..",
        "dir/../file",
        "/dir/file",
        "empty",
        "empty/",
        "empty/..",
        "to_file",
        "to_file/",
        "to_file_slash",
        "to_dir",
        "to_dir/",
        "to_dir/.",
        "to_dir/file",
        "to_dir_slash",
        "dir/up",
        "dangling",
        "dangling/",
        "dangling_absolute",
        "dangling_slash",
        "twice",
        "lost",
        "through_file",
        "loop",
        "loop/x",
        "none",
        "none/",
        "none/.",
        "none/..",
        "none/x",
        "a\0b",
        &long,
        &below_long,
    ];
    for path in paths {
        let call = |name: &str| format!("{name} {path:?}");
        judge.compare(&call("read"), |place| place.read(path));
        judge.compare(&call("write"), |place| place.write(path, b"new"));
        judge.compare(&call("open"), |place| place.open(path));
        judge.compare(&call("create_dir"), |place| place.create_dir(path));
        judge.compare(&call("create_dir_all"), |place| place.create_dir_all(path));
        judge.compare(&call("remove_file"), |place| place.remove_file(path));
        judge.compare(&call("remove_dir"), |place| place.remove_dir(path));
        // For these paths, `std::fs` removes the contents of the directory and then fails.
        let is_emptied_first = path.ends_with('.') || path == "./" || path == "dir/./";
        if !is_emptied_first && path != "to_dir/" {
            judge.compare(&call("remove_dir_all"), |place| place.remove_dir_all(path));
        }
        judge.compare(&call("rename from"), |place| place.rename(path, "new"));
        judge.compare(&call("rename to"), |place| place.rename("file", path));
        judge.compare(&call("rename dir to"), |place| place.rename("dir", path));
        judge.compare(&call("rename to its own"), |place| place.rename(path, path));
        judge.compare(&call("hard_link of"), |place| place.hard_link(path, "new"));
        judge.compare(&call("hard_link to"), |place| place.hard_link("file", path));
        judge.compare(&call("symlink of"), |place| place.symlink(path, "new"));
        judge.compare(&call("symlink at"), |place| place.symlink("file", path));
        judge.compare(&call("read_link"), |place| place.read_link(path));
        judge.compare(&call("metadata"), |place| place.is_dir(path, true));
        judge.compare(&call("symlink_metadata"), |place| place.is_dir(path, false));
        judge.compare(&call("exists"), |place| place.exists(path));
        judge.compare(&call("read_dir"), |place| place.names(path));
        judge.compare(&call("canonicalize"), |place| place.canonicalize(path));
        judge.compare(&call("copy from"), |place| place.copy(path, "new"));
        // `std::fs` truncates a file that is copied onto itself.
        if !IS_FILE.contains(&path) {
            judge.compare(&call("copy to"), |place| place.copy("file", path));
        }
        for letters in OPENINGS {
            let call = format!("open {path:?} as {letters:?}");
            judge.compare(&call, |place| place.open_as(path, letters));
        }
    }
    for path in ["dir/new", "dir/sub/new", "a/b/c", "a/../b", "empty/new/"] {
        let call = format!("create_dir_all {path:?}");
        judge.compare(&call, |place| place.create_dir_all(path));
    }
    for (from, to) in [
        ("hard", "file"),
        ("dir", "dir/sub/x"),
        ("dir/sub", "dir"),
        ("new/", "x/"),
    ] {
        let call = format!("rename {from:?} {to:?}");
        judge.compare(&call, |place| place.rename(from, to));
    }
    env::set_current_dir("/").unwrap();
    let differences = judge.differences.join("\n");
    assert!(
        judge.differences.is_empty(),
        "{} of {}:\n{differences}",
        judge.differences.len(),
        judge.cases
    );
}

#[test]
fn removal_of_the_root_or_by_a_dot_loses_nothing() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root).unwrap();
    let before = whole(root);
    for (path, kind) in [
        ("/", ErrorKind::ResourceBusy),
        (".", ErrorKind::InvalidInput),
        ("dir/.", ErrorKind::InvalidInput),
        ("dir/..", ErrorKind::DirectoryNotEmpty),
        ("to_dir/", ErrorKind::NotADirectory),
    ] {
        let refused = root.remove_dir_all(Path::new(path)).unwrap_err();
        assert_eq!(refused.kind(), kind, "{path}: {refused}");
    }
    assert_eq!(whole(root), before);
}

#[test]
fn umask_takes_bits_of_what_is_made() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    let all = DirBuilder::new().mode(0o777).umask(0o027).recursive(true);
    root.create_dir_with("/dir/below", &all).unwrap();
    let options = OpenOptions::new().write(true).create(true);
    let file = root.open_with("/dir/file", &options.mode(0o666).umask(0o027));
    assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o7777, 0o640);
    for dir in ["/dir", "/dir/below"] {
        assert_eq!(root.metadata(dir).unwrap().mode() & 0o7777, 0o750, "{dir}");
    }
}

#[test]
fn times_are_those_of_the_change_if_told_so() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.write("/file", b"content").unwrap();
    let now = FileTimes::new().set_accessed_now().set_modified_now();
    root.set_times("/file", now).unwrap();
    volume.sync().unwrap();
    let file = root.metadata("/file").unwrap();
    assert_eq!(file.modified(), file.changed());
    assert_eq!(file.accessed(), file.changed());
    // As on a mount: the content is inline.
    assert_eq!((file.bytes_used(), file.blocks()), (7, 8));
}

#[test]
fn reason_leaves_the_words_to_the_program() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root().clone();
    let error = root.rename("/none", "/new").unwrap_err();
    let words = format!("cannot rename '/none' to '/new': {}", error.reason());
    assert_eq!(error.to_string(), words);
    assert!(!error.is_of_volume());
    let too_much = root.write("/big", vec![7; VOLUME_BYTES as usize]);
    assert!(too_much.unwrap_err().is_of_volume());
    volume.close().unwrap();
    assert!(root.create_dir("/dir").unwrap_err().is_of_volume());
}
