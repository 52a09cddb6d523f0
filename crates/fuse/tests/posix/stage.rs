//! The directory of a test case, and the record of its results.

use std::fmt::Debug;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::calls::{self, Errno, Fd, HERE};

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) what: String,
    pub(crate) came: String,
}

/// The private directory of a case.
#[derive(Debug)]
pub(crate) struct Stage {
    root: PathBuf,
    dir: Fd,
    case: &'static str,
    answers: Vec<Answer>,
}

impl Stage {
    pub(crate) fn new(mount: &Path, case: &'static str) -> Stage {
        let root = mount.join(case);
        std::fs::create_dir(&root).unwrap();
        let bytes = root.as_os_str().as_bytes();
        let dir = calls::open(HERE, bytes, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
        Stage {
            root,
            dir,
            case,
            answers: Vec::new(),
        }
    }

    pub(crate) fn answers(self) -> Vec<Answer> {
        self.answers
    }

    /// Returns the descriptor of the directory.
    pub(crate) fn dir(&self) -> i32 {
        self.dir.0
    }

    /// Returns the whole path of a name in the directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> std::ffi::CString {
        calls::path(self.root.join(name).as_os_str().as_bytes())
    }

    pub(crate) fn note(&mut self, what: impl Into<String>, came: impl Debug) {
        self.answers.push(Answer {
            what: format!("{}: {}", self.case, what.into()),
            came: format!("{came:?}"),
        });
    }

    /// Creates a file with these contents, open for reading and writing.
    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> Fd {
        self.file_of(name, contents, 0o644)
    }

    pub(crate) fn file_of(&self, name: &str, contents: &[u8], mode: u32) -> Fd {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = calls::open(self.dir(), name.as_bytes(), flags, mode).unwrap();
        if !contents.is_empty() {
            assert_eq!(calls::pwrite(&file, contents, 0), Ok(contents.len() as i64));
        }
        file
    }

    pub(crate) fn open(&self, name: &str, flags: i32) -> Fd {
        calls::open(self.dir(), name.as_bytes(), flags, 0).unwrap()
    }

    /// Describes kind, mode, owner, links and size of the file of a name.
    pub(crate) fn state(&self, name: &[u8]) -> String {
        state_at(self.dir(), name)
    }

    pub(crate) fn note_state(&mut self, name: &str) {
        let state = self.state(name.as_bytes());
        self.note(format!("state of {name}"), state);
    }

    /// Describes all names and their files.
    pub(crate) fn listing(&self) -> Vec<String> {
        listing_of(&self.dir)
    }

    /// Runs `play` as an unprivileged user.
    pub(crate) fn as_user<T: Send>(
        &mut self,
        (uid, gid, groups): (u32, u32, &[u32]),
        play: impl FnOnce(&mut Stage) -> T + Send,
    ) -> T {
        let played = std::thread::scope(|scope| {
            let player = scope.spawn(|| {
                calls::become_user(uid, gid, groups);
                play(self)
            });
            player.join()
        });
        played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

pub(crate) fn state_at(dir: i32, name: &[u8]) -> String {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    match calls::statx(dir, name, flags) {
        Err(error) => format!("{error:?}"),
        Ok(shown) => {
            let mode = u32::from(shown.stx_mode);
            // A directory's size is the sum of its names, the same on both sides.
            format!(
                "{} {:o} {}:{} links {} size {}",
                kind(mode),
                mode & 0o7777,
                shown.stx_uid,
                shown.stx_gid,
                shown.stx_nlink,
                shown.stx_size
            )
        }
    }
}

pub(crate) fn listing_of(dir: &Fd) -> Vec<String> {
    calls::seek(dir, 0, libc::SEEK_SET).unwrap();
    let mut names = Vec::new();
    loop {
        let found = calls::entries(dir, 32 << 10).unwrap();
        if found.is_empty() {
            break;
        }
        names.extend(found.into_iter().map(|(name, _, _)| name));
    }
    names.sort();
    let names = names
        .into_iter()
        .filter(|name| name != b"." && name != b"..");
    names
        .map(|name| format!("{}: {}", name.escape_ascii(), state_at(dir.0, &name)))
        .collect()
}

fn kind(mode: u32) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFREG => "file",
        libc::S_IFDIR => "dir",
        libc::S_IFLNK => "symlink",
        libc::S_IFIFO => "fifo",
        libc::S_IFSOCK => "socket",
        libc::S_IFCHR => "char",
        libc::S_IFBLK => "block",
        _ => "nothing",
    }
}

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    Empty,
    File,
    Dir,
    FullDir,
    LinkToFile,
    LinkToDir,
    LinkToNothing,
    LinkToItself,
    Fifo,
    Socket,
    Null,
}

impl Kind {
    pub(crate) const ALL: [Kind; 12] = [
        Kind::Missing,
        Kind::Empty,
        Kind::File,
        Kind::Dir,
        Kind::FullDir,
        Kind::LinkToFile,
        Kind::LinkToDir,
        Kind::LinkToNothing,
        Kind::LinkToItself,
        Kind::Fifo,
        Kind::Socket,
        Kind::Null,
    ];

    /// Creates a file of this kind; a link's target is in the same directory.
    pub(crate) fn make(self, dir: i32, name: &str) {
        let target = format!("{name}-target");
        let node = |mode| calls::mknod(dir, name.as_bytes(), mode | 0o644, 0).unwrap();
        let link_to = |target: &str| {
            calls::symlink(target.as_bytes(), dir, name.as_bytes()).unwrap();
        };
        match self {
            Kind::Missing => {}
            Kind::Empty => assert_eq!(node(libc::S_IFREG), 0),
            Kind::File => {
                node(libc::S_IFREG);
                let file = calls::open(dir, name.as_bytes(), libc::O_WRONLY, 0).unwrap();
                calls::pwrite(&file, b"contents", 0).unwrap();
            }
            Kind::Dir => assert_eq!(calls::mkdir(dir, name.as_bytes(), 0o755), Ok(0)),
            Kind::FullDir => {
                Kind::Dir.make(dir, name);
                Kind::Empty.make(dir, &format!("{name}/inside"));
            }
            Kind::LinkToFile => {
                Kind::File.make(dir, &target);
                link_to(&target);
            }
            Kind::LinkToDir => {
                Kind::Dir.make(dir, &target);
                link_to(&target);
            }
            Kind::LinkToNothing => link_to(&target),
            Kind::LinkToItself => link_to(name),
            Kind::Fifo => assert_eq!(node(libc::S_IFIFO), 0),
            Kind::Socket => assert_eq!(node(libc::S_IFSOCK), 0),
            Kind::Null => {
                calls::mknod(dir, name.as_bytes(), libc::S_IFCHR | 0o644, 0x103).unwrap();
            }
        }
    }
}

/// Creates a directory for one try. It is deleted with all its contents afterwards.
pub(crate) fn try_in(stage: &mut Stage, play: impl FnOnce(&mut Stage, i32) -> (String, String)) {
    calls::mkdir(stage.dir(), b"try", 0o755).unwrap();
    let dir = stage.open("try", libc::O_RDONLY | libc::O_DIRECTORY);
    let (what, came) = play(stage, dir.0);
    let left = listing_of(&dir);
    stage.note(what, (came, left));
    empty(&dir);
    calls::unlink(stage.dir(), b"try", libc::AT_REMOVEDIR).unwrap();
}

/// Removes the contents of a directory.
fn empty(dir: &Fd) {
    calls::seek(dir, 0, libc::SEEK_SET).unwrap();
    for (name, _, _) in calls::entries(dir, 32 << 10).unwrap() {
        if name == b"." || name == b".." || calls::unlink(dir.0, &name, 0).is_ok() {
            continue;
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        empty(&calls::open(dir.0, &name, flags, 0).unwrap());
        calls::unlink(dir.0, &name, libc::AT_REMOVEDIR).unwrap();
    }
}

/// Describes an outcome without its value.
pub(crate) fn done<T>(outcome: Result<T, Errno>) -> String {
    match outcome {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}
