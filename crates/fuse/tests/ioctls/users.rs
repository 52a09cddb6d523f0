//! Ordinary users, and root with fewer capabilities, have the same rights to ioctls as in the kernel's btrfs.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::fs::{RenameFlags, XattrFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use super::raw::*;
use super::served::Served;
use super::with_ours;

pub(crate) const OWNER: u32 = 1001;
const GROUP: u32 = 1003;

pub(crate) struct Player {
    name: &'static str,
    /// Also the group id.
    uid: u32,
    groups: &'static [u32],
    capabilities: CapabilitySet,
}

pub(crate) const PLAYERS: [Player; 5] = [
    Player {
        name: "owner",
        uid: OWNER,
        groups: &[],
        capabilities: CapabilitySet::empty(),
    },
    Player {
        name: "other",
        uid: 1002,
        groups: &[],
        capabilities: CapabilitySet::empty(),
    },
    Player {
        name: "member",
        uid: 1004,
        groups: &[7, GROUP],
        capabilities: CapabilitySet::empty(),
    },
    Player {
        name: "administrator",
        uid: 1005,
        groups: &[],
        capabilities: CapabilitySet::SYS_ADMIN,
    },
    Player {
        name: "root",
        uid: 0,
        groups: &[],
        capabilities: CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER),
    },
];

impl Player {
    pub(crate) fn play<T: Send>(&self, play: impl FnOnce() -> T + Send) -> T {
        let played = thread::scope(|scope| {
            let player = scope.spawn(|| {
                self.become_it().unwrap();
                play()
            });
            player.join()
        });
        played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Changes the calling thread, and no other, to the player's user.
    fn become_it(&self) -> rustix::io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.uid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_keep_capabilities(true)?;
        set_thread_res_uid(uid, uid, uid)?;
        let sets = CapabilitySets {
            effective: self.capabilities,
            permitted: self.capabilities,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets)
    }
}

/// Directories: owner, group, mode, and the subvolumes in them.
const DIRS: [(&str, u32, u32, u32, &[&str]); 7] = [
    (
        "home",
        OWNER,
        OWNER,
        0o755,
        &["owners", "roots", "shut", "frozen"],
    ),
    ("open", 0, 0, 0o777, &["owners", "roots"]),
    ("sticky", 0, 0, 0o1777, &["owners", "roots"]),
    ("group", 0, GROUP, 0o2775, &["owners"]),
    ("granted", 0, 0, 0o755, &["roots"]),
    ("unsearchable", 0, 0, 0o766, &["roots"]),
    ("private", 0, 0, 0o700, &["roots"]),
];

fn subvolume(dir: &Path, name: &str) {
    let made = ask(
        &File::open(dir).unwrap(),
        SUBVOL_CREATE,
        &named(name.as_bytes()),
    );
    made.unwrap();
    let path = dir.join(name);
    fs::create_dir(path.join("dir")).unwrap();
    fs::write(path.join("file"), "contents").unwrap();
    let (uid, mode) = match name {
        "roots" => (0, 0o777),
        "shut" => (OWNER, 0o700),
        _ => (OWNER, 0o755),
    };
    for path in [path.join("dir"), path.join("file"), path.clone()] {
        chown(&path, Some(uid), Some(uid)).unwrap();
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    if name == "frozen" {
        let root = File::open(&path).unwrap();
        ask(&root, SETFLAGS, &numbers(&[READ_ONLY])).unwrap();
    }
}

/// Creates an ACL that gives the owner of the play all rights.
fn acl_for_owner(others: u16) -> Vec<u8> {
    acl(&[
        (0x01, 7, NOBODY),
        (0x02, 7, OWNER),
        (0x04, 5, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, others, NOBODY),
    ])
}

pub(crate) const NOBODY: u32 = u32::MAX;

/// Creates an ACL of tags, rights and ids, in the layout of the kernel's `posix_acl_xattr.h`.
pub(crate) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn furnish(stage: &Path) {
    fs::create_dir(stage).unwrap();
    for (name, uid, gid, mode, subvolumes) in DIRS {
        let dir = stage.join(name);
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        fs::write(dir.join("file"), "contents").unwrap();
        for name in subvolumes {
            subvolume(&dir, name);
        }
        if name == "granted" {
            for (kind, others) in [
                ("system.posix_acl_access", 5),
                ("system.posix_acl_default", 0),
            ] {
                let acl = acl_for_owner(others);
                rustix::fs::setxattr(&dir, kind, &acl, XattrFlags::empty()).unwrap();
            }
        }
    }
}

fn id_of(subvolume: &Path) -> u64 {
    try_id_of(subvolume).unwrap_or_else(|error| panic!("{}: {error}", subvolume.display()))
}

fn try_id_of(subvolume: &Path) -> io::Result<u64> {
    let root = File::open(subvolume)?;
    let answer = ask(&root, INO_LOOKUP, &numbers(&[0, 256]))?;
    Ok(u64::from_ne_bytes(*answer.first_chunk().unwrap()))
}

/// Describes subvolumes in a directory as the kernel has them by name, and then as the directory is listed.
fn described(dir: &Path, names: &[&str]) -> String {
    let by_name = names.iter().map(|name| {
        let path = dir.join(name);
        let number = fs::symlink_metadata(&path).map(|state| state.ino());
        format!("{name}: inode {number:?}, id {:?}", try_id_of(&path))
    });
    let by_name: Vec<_> = by_name.collect();
    let listed = fs::read_dir(dir).map(|entries| {
        let entries = entries.flatten();
        let entries = entries.map(|entry| (entry.file_name(), entry.ino()));
        entries.collect::<Vec<_>>()
    });
    format!("{by_name:?}, listed {listed:?}")
}

pub(crate) fn state(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(state) => {
            let acls = ["system.posix_acl_access", "system.posix_acl_default"].map(|kind| {
                let mut acl = [0; 100];
                rustix::fs::getxattr(path, kind, &mut acl).map(|_| acl)
            });
            let owners = (state.uid(), state.gid());
            format!("{:o} {owners:?} {acls:?}", state.mode())
        }
        Err(error) => format!("{:?}", error.raw_os_error()),
    }
}

/// Runs all ioctls as one player in one directory.
fn play_in(dir: &Path, name: &str, subvolumes: &[&str], player: &str, answers: &mut Answers) {
    let mut note = |what: &str, answer| answers.note(&format!("{player}: {name}: {what}"), answer);
    let open =
        |path: &Path| File::open(path).map_err(|error| Errno::from_io_error(&error).unwrap());
    let opened = match open(dir) {
        Ok(opened) => opened,
        Err(error) => return note("open", Err(error)),
    };
    for new in ["new", "roots", "none/x"] {
        let made = ask(&opened, SUBVOL_CREATE, &named(new.as_bytes()));
        note(&format!("create {new}"), silent(made));
    }
    note("new is", Ok(state(&dir.join("new")).into_bytes()));
    for of in subvolumes {
        let source = match open(&dir.join(of)) {
            Ok(source) => source,
            Err(error) => {
                note(&format!("open {of}"), Err(error));
                continue;
            }
        };
        let snapshot = format!("snapshot-{of}");
        let args = named_from(source.as_raw_fd(), snapshot.as_bytes());
        let made = silent(ask(&opened, SNAP_CREATE, &args));
        note(&format!("snapshot of {of}"), made);
        note("it is", Ok(state(&dir.join(&snapshot)).into_bytes()));
        let args = named_v2(source.as_raw_fd().into(), READ_ONLY, snapshot.as_bytes());
        let made = silent(ask(&opened, SNAP_CREATE_V2, &args));
        note(&format!("again a snapshot of {of}"), made);
        note(
            "create in it",
            silent(ask(&source, SUBVOL_CREATE, &named(b"inner"))),
        );
        note("flags", ask(&source, GETFLAGS, b""));
        for flags in [4, READ_ONLY, 0] {
            let set = silent(ask(&source, SETFLAGS, &numbers(&[flags])));
            note(&format!("set flags {flags} of {of}"), set);
        }
        note("received", silent(ask(&source, SET_RECEIVED, &[7; 16])));
        for name in ["file", "dir", "inner", "none"] {
            let gone = silent(ask(&source, SNAP_DESTROY, &named(name.as_bytes())));
            note(&format!("destroy {of}/{name}"), gone);
        }
        if let Ok(file) = open(&dir.join(of).join("file")) {
            note(
                "set flags by a file",
                silent(ask(&file, SETFLAGS, &numbers(&[0]))),
            );
        }
    }
    for name in [b"file".as_slice(), b"dir", b"none", b".", b"a/b", b""] {
        let gone = silent(ask(&opened, SNAP_DESTROY, &named(name)));
        note(&format!("destroy {}", name.escape_ascii()), gone);
    }
    for of in subvolumes {
        let snapshot = format!("snapshot-{of}");
        for name in [*of, &snapshot] {
            let gone = silent(ask(&opened, SNAP_DESTROY, &named(name.as_bytes())));
            note(&format!("destroy {name}"), gone);
        }
    }
    for name in ["new", "roots"] {
        let gone = fs::remove_dir(dir.join(name));
        let gone = gone.map_err(|error| Errno::from_io_error(&error).unwrap());
        note(&format!("rmdir {name}"), gone.map(|()| Vec::new()));
    }
}

/// Queries the volume, and names in it. `places` are pairs of inode and subvolume.
fn play_on_volume(stage: &Path, places: &[(u64, u64)], player: &str, answers: &mut Answers) {
    let mut note = |what: &str, answer| answers.note(&format!("{player}: {what}"), answer);
    let root = File::open(stage).unwrap();
    let all = (u64::MAX, 255, u64::MAX);
    note(
        "search",
        silent(ask(&root, TREE_SEARCH, &search(0, (0, 0, 0), all))),
    );
    let (_, subvolume) = places[0];
    for (id, inode) in [
        (0, 256),
        (5, 256),
        (subvolume, 256),
        (99_999, 256),
        (0, 257),
        (5, 257),
    ] {
        let answer = ask(&root, INO_LOOKUP, &numbers(&[id, inode]));
        note(
            &format!("lookup {id} {inode}"),
            answer.map(|answer| text_at(16, answer)),
        );
    }
    let above = File::open(stage.parent().unwrap()).unwrap();
    let dirs = DIRS.map(|(name, ..)| (name, File::open(stage.join(name)).ok()));
    let opened = dirs
        .iter()
        .filter_map(|(name, dir)| Some((*name, dir.as_ref()?)));
    let all: Vec<_> = [("above", &above), ("stage", &root)]
        .into_iter()
        .chain(opened)
        .collect();
    for (of, dir) in &all {
        for (at, (inode, id)) in places.iter().enumerate() {
            let answer = ask(dir, INO_LOOKUP_USER, &numbers(&[*inode, *id]));
            // The name, and its parent's path.
            let answer = answer.map(|answer| {
                let text = |at| text_at(at, answer.clone())[at..].to_vec();
                [text(16), b" in ".to_vec(), text(272)].concat()
            });
            note(
                &format!("lookup in {of} of the subvolume of {}", DIRS[at].0),
                answer,
            );
        }
    }
    note(
        "default",
        silent(ask(&root, DEFAULT_SUBVOL, &numbers(&[0]))),
    );
    note("label", silent(ask(&root, SET_FSLABEL, player.as_bytes())));
    note("label", ask(&root, GET_FSLABEL, b""));
    note(
        "rootref",
        ask(&root, GET_SUBVOL_ROOTREF, b"").map(|refs| refs[..8].to_vec()),
    );
    let info = ask(&root, GET_SUBVOL_INFO, b"");
    note("info", info.map(|info| info[..280].to_vec()));
    note("volume", silent(ask(&root, FS_INFO, b"")));
    note("features", silent(ask(&root, GET_FEATURES, b"")));
    note("device", silent(ask(&root, DEV_INFO, &numbers(&[1]))));
    note("spaces", silent(ask(&root, SPACE_INFO, b"")));
    note("sync", silent(ask(&root, SYNC, b"")));
    note("start", silent(ask(&root, START_SYNC, b"")));
    note("wait", silent(ask(&root, WAIT_SYNC, &numbers(&[0]))));
    for len in [u64::MAX, 1] {
        note("trim", silent(ask(&root, FITRIM, &numbers(&[0, len, 0]))));
    }
    for id in [subvolume, 99_999, 5] {
        let gone = ask(&root, SNAP_DESTROY_V2, &named_v2(0, BY_ID, &numbers(&[id])));
        note(&format!("destroy by id {id}"), silent(gone));
    }
}

fn play(top: &Path) -> Vec<String> {
    let mut answers = Answers::default();
    for player in &PLAYERS {
        let stage = top.join(player.name);
        furnish(&stage);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let places = DIRS.map(|(name, .., subvolumes)| {
            let dir = stage.join(name);
            (inode(&dir), id_of(&dir.join(subvolumes[0])))
        });
        player.play(|| {
            for (name, .., subvolumes) in DIRS {
                play_in(
                    &stage.join(name),
                    name,
                    subvolumes,
                    player.name,
                    &mut answers,
                );
            }
            play_on_volume(&stage, &places, player.name, &mut answers);
        });
        for (name, ..) in DIRS {
            left(&stage.join(name), &mut answers).unwrap();
        }
    }
    answers.0
}

fn left(dir: &Path, answers: &mut Answers) -> io::Result<()> {
    let mut names = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let what = format!("left: {}", Path::new(&name).display());
        answers.note(&what, Ok(state(&dir.join(&name)).into_bytes()));
    }
    Ok(())
}

#[test]
fn users_may_by_ioctl_what_the_kernel_lets_them() {
    if !or_skip("users_may_by_ioctl_what_the_kernel_lets_them") {
        return;
    }
    for words in ["", "user_subvol_rm_allowed"] {
        let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let kernel = theirs.mount(words).unwrap();
        let expected = play(kernel.path());
        kernel.unmount().unwrap();

        let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let dir = made.dir().join("ours");
        fs::create_dir(&dir).unwrap();
        let served = Served::start("serving_process", &made.devices()[0], &dir, words);
        let answers = play(&dir);
        served.end();
        made.check().unwrap();
        eprintln!("'{words}'");
        assert_same(&answers, &expected);
    }
}

/// The kernel holds one lock from the lookup of the name to its deletion.
#[test]
fn a_subvolume_that_takes_a_name_meanwhile_is_not_deleted() {
    if !or_skip("a_subvolume_that_takes_a_name_meanwhile_is_not_deleted") {
        return;
    }
    const TRIES: usize = 800;
    with_ours("user_subvol_rm_allowed", |top| {
        let dir = top.join("dir");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
        subvolume(&dir, "others");
        let kept = id_of(&dir.join("others"));
        let opened = File::open(&dir).unwrap();
        let create = || ask(&opened, SUBVOL_CREATE, &named(b"own"));
        let player = &PLAYERS[1];
        player.play(create).unwrap();
        thread::scope(|scope| {
            let destroying = scope.spawn(|| {
                player.play(|| {
                    for round in 0..TRIES {
                        let destroyed = ask(&opened, SNAP_DESTROY, &named(b"own"));
                        let made = destroyed.clone().and_then(|_| create());
                        let is_as_expected = match destroyed {
                            Ok(_) => made.is_ok(),
                            Err(error) => error == Errno::ACCESS,
                        };
                        assert!(
                            is_as_expected,
                            "round {round}: destroyed {:?}, made {:?}; {}",
                            silent(destroyed),
                            silent(made),
                            described(&dir, &["own", "others"])
                        );
                    }
                });
            });
            player.play(|| {
                while !destroying.is_finished() {
                    let exchange = RenameFlags::EXCHANGE;
                    let _ = renameat_with(&opened, "own", &opened, "others", exchange);
                }
            });
        });
        let left = ["others", "own"].map(|name| try_id_of(&dir.join(name)));
        assert!(
            left.iter().all(Result::is_ok) && left.iter().flatten().any(|id| *id == kept),
            "{kept} of {left:?}; {}",
            described(&dir, &["own", "others"])
        );
    });
}

const STAGE: &str = "UBTRFS_TEST_STAGE";
const ANSWER: &str = "answer: ";

/// Not a test: root in a user namespace of its own.
#[test]
#[ignore = "run by another test"]
fn root_of_another_namespace() {
    let Some(stage) = std::env::var_os(STAGE) else {
        return;
    };
    let mut answers = Answers::default();
    let mut note = |what: &str, answer| answers.note(what, silent(answer));
    let root = File::open(&stage).unwrap();
    let all = (u64::MAX, 255, u64::MAX);
    note(
        "search",
        ask(&root, TREE_SEARCH, &search(0, (0, 0, 0), all)),
    );
    note("default", ask(&root, DEFAULT_SUBVOL, &numbers(&[0])));
    note("label", ask(&root, SET_FSLABEL, b"other"));
    note("trim", ask(&root, FITRIM, &numbers(&[0, u64::MAX, 0])));
    note("create", ask(&root, SUBVOL_CREATE, &named(b"new")));
    note("destroy", ask(&root, SNAP_DESTROY, &named(b"new")));
    let users = File::open(Path::new(&stage).join("users")).unwrap();
    note("flags", ask(&users, SETFLAGS, &numbers(&[READ_ONLY])));
    let args = named_from(users.as_raw_fd(), b"snapshot");
    note("snapshot", ask(&root, SNAP_CREATE, &args));
    for answer in answers.0 {
        println!("{ANSWER}{answer}");
    }
}

fn ask_in_another_namespace(top: &Path) -> Vec<String> {
    let made = ask(&File::open(top).unwrap(), SUBVOL_CREATE, &named(b"users"));
    made.unwrap();
    chown(top.join("users"), Some(OWNER), Some(OWNER)).unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "users::root_of_another_namespace"])
        .args(["--ignored", "--nocapture"])
        .env(STAGE, top)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let answers = text
        .lines()
        .filter_map(|line| Some(line.split_once(ANSWER)?.1.to_owned()));
    let answers: Vec<String> = answers.collect();
    assert!(output.status.success() && !answers.is_empty(), "{output:?}");
    answers
}

#[test]
fn capabilities_of_another_namespace_count_for_nothing() {
    if !or_skip("capabilities_of_another_namespace_count_for_nothing") {
        return;
    }
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let kernel = theirs.mount("").unwrap();
    let expected = ask_in_another_namespace(kernel.path());
    kernel.unmount().unwrap();
    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let dir = made.dir().join("ours");
    fs::create_dir(&dir).unwrap();
    let served = Served::start("serving_process", &made.devices()[0], &dir, "");
    let answers = ask_in_another_namespace(&dir);
    served.end();
    assert_same(&answers, &expected);
}
