//! Directories in which a caller has fewer rights than the program.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use ubtrfs::{
    Access, Caller, Dir, DirBuilder, ReceiveOptions, Result, SendOptions, Snapshot, Volume,
};

const EACCES: i32 = 13;
const EPERM: i32 = 1;
const OWNER: u32 = 1000;
const STRANGER: u32 = 2000;

fn volume() -> Volume {
    Volume::in_memory(256 << 20).unwrap()
}

fn user(id: u32) -> Caller {
    Caller::new(id, id)
}

/// Creates a directory with this mode, owned by the owner.
fn home(volume: &Volume, mode: u32) -> Dir {
    let root = volume.root();
    root.create_dir("/home").unwrap();
    root.chown("/home", Some(OWNER), Some(OWNER)).unwrap();
    let permissions = Permissions::from_mode(mode);
    root.set_permissions("/home", permissions).unwrap();
    root.open_dir("/home").unwrap()
}

fn refused<T>(outcome: Result<T>) -> i32 {
    let error = outcome.err().expect("the caller may not");
    assert!(error.is_refusal(), "{error}");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    error.errno()
}

#[test]
fn new_subvolumes_belong_to_the_caller_and_go_without_its_umask() {
    let volume = volume();
    let home = home(&volume, 0o777).with_caller(&user(STRANGER).umask(0o027));
    let builder = DirBuilder::new().mode(0o777);
    home.create_dir("dir", &builder).unwrap();
    home.create_subvolume("subvolume", &builder).unwrap();
    for path in ["/home/dir", "/home/subvolume"] {
        let made = volume.root().metadata(path).unwrap();
        assert_eq!((made.uid(), made.gid()), (STRANGER, STRANGER));
        assert_eq!(made.mode() & 0o7777, 0o750);
    }
}

#[test]
fn modes_and_groups_decide_which_caller_makes_names() {
    let volume = volume();
    let home = home(&volume, 0o770);
    let builder = DirBuilder::new();
    let make = |caller: &Caller, name: &str| {
        let home = home.clone().with_caller(caller);
        home.create_subvolume(name, &builder)
    };
    make(&user(OWNER), "own").unwrap();
    make(&user(STRANGER).groups([OWNER]), "of-group").unwrap();
    make(&user(STRANGER).administrator(), "of-root").unwrap();
    assert_eq!(refused(make(&user(STRANGER), "of-stranger")), EACCES);
    // Only callers that may search the directory learn whether a name exists.
    assert_eq!(refused(make(&user(STRANGER), "own")), EACCES);
    let taken = make(&user(OWNER), "own").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn snapshots_are_for_the_owner_of_their_source() {
    let volume = volume();
    let home = home(&volume, 0o777);
    let owned = home.clone().with_caller(&user(OWNER));
    let source = owned.create_subvolume("work", &DirBuilder::new()).unwrap();
    let strange = home.with_caller(&user(STRANGER));
    let stolen = strange.snapshot(&source, "stolen", Access::Writable);
    assert_eq!(refused(stolen), EPERM);
    owned.snapshot(&source, "kept", Access::ReadOnly).unwrap();
    let read_only = owned.open_dir("kept").unwrap();
    let error = read_only.create_dir("new", &DirBuilder::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    let other = Volume::in_memory(256 << 20).unwrap();
    let elsewhere = other.root().open_dir("/").unwrap();
    let crossed = elsewhere.snapshot(&source, "crossed", Access::ReadOnly);
    assert_eq!(crossed.unwrap_err().kind(), ErrorKind::CrossesDevices);
}

#[test]
fn users_delete_subvolumes_where_that_is_allowed() {
    let volume = volume();
    let home = home(&volume, 0o1777);
    let owned = home.clone().with_caller(&user(OWNER));
    for name in ["first", "second", "third"] {
        owned.create_subvolume(name, &DirBuilder::new()).unwrap();
    }
    assert_eq!(refused(owned.delete_subvolume("first")), EPERM);
    let allowed = |id| user(id).allow_deleting_subvolumes(true);
    // Only its owner may write to the subvolume.
    let strange = home.clone().with_caller(&allowed(STRANGER));
    assert_eq!(refused(strange.delete_subvolume("first")), EACCES);
    let owned = home.clone().with_caller(&allowed(OWNER));
    owned.delete_subvolume("first").unwrap();
    let place = owned.open_dir("second").unwrap().delete_itself().unwrap();
    assert_eq!(place.name, "second");
    assert_eq!(place.ino, home.metadata().unwrap().ino());
    assert_eq!(
        (place.subvolume_id, place.ino),
        (home.subvolume_id(), home.ino())
    );
    home.delete_subvolume("third").unwrap();
    assert_eq!(volume.root().read_dir("/home").unwrap().count(), 0);
}

#[test]
fn a_deletion_of_no_subvolume_fails_by_its_kind() {
    let volume = volume();
    let root = volume.root();
    let top = root.open_dir("/").unwrap();
    top.create_dir("plain", &DirBuilder::new()).unwrap();
    let held = top.create_subvolume("held", &DirBuilder::new()).unwrap();
    held.create_subvolume("/inner").unwrap();
    let shown = top.create_subvolume("shown", &DirBuilder::new()).unwrap();
    volume.set_default_subvolume(&shown).unwrap();
    let kind = |name| top.delete_subvolume(name).unwrap_err().kind();
    assert_eq!(kind("missing"), ErrorKind::NotFound);
    assert_eq!(kind("plain"), ErrorKind::InvalidInput);
    assert_eq!(kind("held"), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind("shown"), ErrorKind::PermissionDenied);
    let kind = |dir: Dir| dir.delete_itself().unwrap_err().kind();
    assert_eq!(
        kind(top.open_dir("plain").unwrap()),
        ErrorKind::InvalidInput
    );
    assert_eq!(kind(top.clone()), ErrorKind::NotFound);
    held.set_read_only(true).unwrap();
    let inner = top.open_dir("held").unwrap().delete_subvolume("inner");
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn flags_are_for_the_owner() {
    let volume = volume();
    let home = home(&volume, 0o777);
    let owned = home.clone().with_caller(&user(OWNER));
    let subvolume = owned.create_subvolume("work", &DirBuilder::new()).unwrap();
    let strange = home.clone().with_caller(&user(STRANGER));
    let strange = strange.open_dir("work").unwrap();
    assert_eq!(refused(strange.set_read_only(true)), EPERM);
    assert_eq!(refused(strange.forget_received()), EPERM);
    let owned = owned.open_dir("work").unwrap();
    owned.set_read_only(true).unwrap();
    assert!(subvolume.is_read_only().unwrap());
    owned.set_read_only(false).unwrap();
    let plain = home.create_dir("plain", &DirBuilder::new()).unwrap();
    let none = plain.set_read_only(true).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
}

#[test]
fn received_subvolume_forgets_its_origin() {
    let volume = volume();
    let root = volume.root();
    let data = root.create_subvolume("/data").unwrap();
    let sent = data.snapshot("/", "/sent", Access::ReadOnly).unwrap();
    let mut stream = Vec::new();
    let snapshot = ubtrfs::Snapshot::open(&sent).unwrap();
    snapshot
        .send(&SendOptions::new(), &mut stream, &mut ())
        .unwrap();
    root.create_dir("/backup").unwrap();
    root.receive("/backup", &stream[..], &ReceiveOptions::new(), &mut ())
        .unwrap();
    let received = root.subvolume("/backup/sent").unwrap();
    assert!(received.info().unwrap().received_uuid.is_some());
    let dir = received.open_dir("/").unwrap();
    dir.set_read_only(false).unwrap();
    dir.forget_received().unwrap();
    assert_eq!(received.info().unwrap().received_uuid, None);
}

#[test]
fn open_directory_is_the_same_under_another_name() {
    let volume = volume();
    let root = volume.root();
    root.create_dir("/old").unwrap();
    let dir = root.open_dir("/old").unwrap();
    root.rename("/old", "/new").unwrap();
    root.create_dir("/old").unwrap();
    dir.create_dir("within", &DirBuilder::new()).unwrap();
    assert!(root.exists("/new/within").unwrap());
    root.remove_dir_all("/new").unwrap();
    let gone = dir.create_dir("more", &DirBuilder::new());
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Creates a volume in which the owner has a private directory with the snapshot `one`, whose file has 64 KiB. Also
/// returns an incremental stream to a second snapshot, in which a copy of the file is a clone.
fn private_parent() -> (Volume, Vec<u8>) {
    let volume = volume();
    let root = volume.root();
    home(&volume, 0o700);
    let work = root.create_subvolume("/home/work").unwrap();
    work.chown("/", Some(OWNER), Some(OWNER)).unwrap();
    work.write("/secret", vec![7; 64 << 10]).unwrap();
    let one = root.snapshot("/home/work", "/home/one", Access::ReadOnly);
    let one = Snapshot::open(&one.unwrap()).unwrap();
    work.write("/new", b"new").unwrap();
    let two = root.snapshot("/home/work", "/home/two", Access::ReadOnly);
    let two = Snapshot::open(&two.unwrap()).unwrap();
    let mut difference = Vec::new();
    let options = SendOptions::new().parent(&one);
    two.send(&options, &mut difference, &mut ()).unwrap();
    root.create_dir("/in").unwrap();
    let permissions = Permissions::from_mode(0o777);
    root.set_permissions("/in", permissions).unwrap();
    (volume, difference)
}

fn receive_as(volume: &Volume, caller: &Caller, stream: &[u8]) -> Result<()> {
    receive_with(volume, caller, stream, &ReceiveOptions::new())
}

fn receive_with(
    volume: &Volume,
    caller: &Caller,
    stream: &[u8],
    options: &ReceiveOptions,
) -> Result<()> {
    let dir = volume.root().open_dir("/in").unwrap().with_caller(caller);
    let received = dir.receive(stream, options, &mut ());
    if volume.root().exists("/in/two").unwrap() {
        volume.root().delete_subvolume("/in/two").unwrap();
    }
    received.map(drop)
}

fn set_mode(volume: &Volume, path: &str, mode: u32) {
    let permissions = Permissions::from_mode(mode);
    volume.root().set_permissions(path, permissions).unwrap();
}

#[test]
fn streams_go_on_from_subvolumes_that_the_caller_can_reach_and_owns() {
    let (volume, difference) = private_parent();
    // SOURCES-1
    let hidden = |outcome: Result<()>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("cannot find parent subvolume"));
    };
    receive_as(&volume, &user(OWNER), &difference).unwrap();
    receive_as(&volume, &user(STRANGER).administrator(), &difference).unwrap();
    hidden(receive_as(&volume, &user(STRANGER), &difference));
    let any = ReceiveOptions::new().any_source(true);
    receive_with(&volume, &user(STRANGER), &difference, &any).unwrap();
    // Even if the subvolume is visible, only its owner may snapshot it.
    set_mode(&volume, "/home", 0o755);
    hidden(receive_as(&volume, &user(STRANGER), &difference));
    // The owner fails as well without access to the path, or without permission to read the subvolume.
    let root = volume.root();
    root.chown("/home", Some(0), Some(0)).unwrap();
    set_mode(&volume, "/home", 0o700);
    hidden(receive_as(&volume, &user(OWNER), &difference));
    set_mode(&volume, "/home", 0o711);
    receive_as(&volume, &user(OWNER), &difference).unwrap();
    let one = root.subvolume("/home/one").unwrap();
    one.set_read_only(false).unwrap();
    set_mode(&volume, "/home/one", 0o311);
    one.set_read_only(true).unwrap();
    hidden(receive_as(&volume, &user(OWNER), &difference));
}

#[test]
fn parent_outside_the_opened_subvolume_is_not_there() {
    let (volume, difference) = private_parent();
    let inner = volume.root().create_subvolume("/in/inner").unwrap();
    inner.chown("/", Some(OWNER), Some(OWNER)).unwrap();
    let dir = inner.open_dir("/").unwrap();
    let options = ReceiveOptions::new();
    let owned = dir.clone().with_caller(&user(OWNER));
    let outside = owned.receive(&difference[..], &options, &mut ());
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::NotFound);
    dir.receive(&difference[..], &options, &mut ()).unwrap();
}

#[test]
fn changed_subvolume_is_named_to_those_alone_that_can_reach_it() {
    let (volume, difference) = private_parent();
    let one = volume.root().subvolume("/home/one").unwrap();
    one.set_read_only(false).unwrap();
    let changed = receive_as(&volume, &user(OWNER), &difference).unwrap_err();
    assert_eq!(changed.kind(), ErrorKind::PermissionDenied);
    let hidden = receive_as(&volume, &user(STRANGER), &difference).unwrap_err();
    assert_eq!(hidden.kind(), ErrorKind::NotFound);
}

#[test]
fn streams_copy_from_files_that_the_caller_could_open() {
    let (volume, _) = private_parent();
    let root = volume.root();
    let open = |path| Snapshot::open(&root.subvolume(path).unwrap()).unwrap();
    let (one, two) = (open("/home/one"), open("/home/two"));
    // It is not incremental, but it clones data of the other.
    let mut copy = Vec::new();
    let options = SendOptions::new().clone_source(&one);
    two.send(&options, &mut copy, &mut ()).unwrap();
    assert!(copy.len() < 32 << 10, "the file is no clone");
    drop((one, two));
    let stranger = user(STRANGER);
    receive_as(&volume, &user(OWNER), &copy).unwrap();
    receive_as(&volume, &user(STRANGER).administrator(), &copy).unwrap();
    let hidden = receive_as(&volume, &stranger, &copy).unwrap_err();
    assert_eq!(hidden.kind(), ErrorKind::NotFound);
    assert!(hidden.to_string().contains("cannot find clone source"));
    // Other users may clone data that they may read.
    set_mode(&volume, "/home", 0o711);
    receive_as(&volume, &stranger, &copy).unwrap();
    let inner = root.subvolume("/home/one").unwrap();
    let set_file_mode = |mode| {
        inner.set_read_only(false).unwrap();
        set_mode(&volume, "/home/one/secret", mode);
        inner.set_read_only(true).unwrap();
    };
    set_file_mode(0o600);
    let unreadable = receive_as(&volume, &stranger, &copy).unwrap_err();
    assert_eq!(unreadable.kind(), ErrorKind::PermissionDenied);
    assert_eq!(unreadable.errno(), EACCES);
    assert!(!unreadable.is_refusal(), "the directory is not at fault");
    let any = ReceiveOptions::new().any_source(true);
    receive_with(&volume, &stranger, &copy, &any).unwrap();
    receive_as(&volume, &stranger.groups([100]), &copy).unwrap_err();
    set_file_mode(0o604);
    receive_as(&volume, &user(STRANGER), &copy).unwrap();
    let set_root_mode = |mode| {
        inner.set_read_only(false).unwrap();
        set_mode(&volume, "/home/one", mode);
        inner.set_read_only(true).unwrap();
    };
    // Files can be opened by path even if the directory is not readable.
    set_root_mode(0o711);
    receive_as(&volume, &user(STRANGER), &copy).unwrap();
    set_root_mode(0o744);
    let hidden = receive_as(&volume, &user(STRANGER), &copy).unwrap_err();
    assert_eq!(hidden.kind(), ErrorKind::NotFound);
}

/// LOOKUP-3
#[test]
fn directories_on_the_way_are_searched_for_the_caller() {
    let volume = volume();
    let root = volume.root();
    let home = home(&volume, 0o711);
    for (path, mode) in [
        ("/home/private", 0o700),
        ("/home/private/shared", 0o777),
        ("/home/open", 0o755),
        ("/home/open/inner", 0o755),
    ] {
        root.create_dir(path).unwrap();
        root.chown(path, Some(OWNER), Some(OWNER)).unwrap();
        set_mode(&volume, path, mode);
    }
    root.symlink("/home/private/shared", "/home/open/by-root")
        .unwrap();
    root.symlink("../private/shared", "/home/open/by-parent")
        .unwrap();
    root.symlink("inner", "/home/open/by-name").unwrap();
    root.symlink("../private/", "/home/open/to-private")
        .unwrap();
    let strange = home.clone().with_caller(&user(STRANGER));
    let names_of = |dir: &Dir| dir.metadata().unwrap().ino();
    for path in [
        "private/shared",
        "private/missing",
        "private/..",
        "private/.",
        "/home/private/shared",
        "open/../private/shared",
        "open/by-root",
        "open/by-parent",
    ] {
        assert_eq!(refused(strange.open_dir(path)), EACCES, "{path}");
    }
    // Opening a directory needs no permission on it.
    let private = strange.open_dir("private").unwrap();
    for path in ["private/", "open/to-private"] {
        let found = strange.open_dir(path).unwrap();
        assert_eq!(names_of(&found), names_of(&private), "{path}");
    }
    assert_eq!(refused(strange.open_dir("open/to-private/shared")), EACCES);
    for path in [".", "..", "shared", "../open", "shared/.."] {
        assert_eq!(refused(private.open_dir(path)), EACCES, "{path}");
    }
    assert_eq!(refused(private.symlink_metadata("shared")), EACCES);
    let inner = strange.open_dir("open/inner").unwrap();
    for path in ["open/by-name", "/home/open/inner", "open/inner/../inner/"] {
        let found = strange.open_dir(path).unwrap();
        assert_eq!(names_of(&found), names_of(&inner), "{path}");
    }
    let missing = strange.open_dir("open/missing").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(
        strange.open_dir("").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    // A file opened through the directory has the same caller.
    let made = inner.create_dir("new", &DirBuilder::new());
    assert_eq!(refused(made), EACCES);
    let owned = home.with_caller(&user(OWNER));
    for path in ["private/shared", "open/by-root", "open/by-parent"] {
        owned.open_dir(path).unwrap();
    }
}
