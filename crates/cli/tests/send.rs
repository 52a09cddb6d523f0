//! `ubtrfs send` from images, from our mounts and from the kernel's, compared with `btrfs send`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, available_or_skip};

fn run(program: &str, args: &[&OsStr]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

fn ubtrfs(args: &[&OsStr]) -> Output {
    run(env!("CARGO_BIN_EXE_ubtrfs"), args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeed(args: &[&OsStr]) -> Output {
    let output = ubtrfs(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    output
}

#[track_caller]
fn refused(args: &[&OsStr], message: &str) {
    let output = ubtrfs(args);
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {messages}");
    assert!(messages.contains(message), "{args:?}: {messages}");
}

fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn at(image: &Path, path: &str) -> OsString {
    let mut location = image.as_os_str().to_owned();
    location.push(":");
    location.push(path);
    location
}

/// Creates a volume with a subvolume `live` and two snapshots of it.
fn image(scratch: &Scratch, name: &str) -> PathBuf {
    let image = scratch.file(name, 256 << 20).unwrap();
    succeed(&[os("mkfs"), image.as_os_str()]);
    let data = scratch.path().join("data");
    let at = |path: &str| at(&image, path);
    succeed(&[os("subvolume"), os("create"), &at("/live")]);
    for (number, snapshot) in ["/first", "/second"].into_iter().enumerate() {
        fs::write(&data, vec![b'a' + number as u8; 300_000]).unwrap();
        let file = at(&format!("/live/file {number}"));
        succeed(&[os("cp"), data.as_os_str(), &file]);
        succeed(&[
            os("subvolume"),
            os("snapshot"),
            os("-r"),
            &at("/live"),
            &at(snapshot),
        ]);
    }
    image
}

#[test]
fn a_series_goes_from_image_to_image() {
    let scratch = Scratch::new().unwrap();
    let source = image(&scratch, "source");
    let target = scratch.file("target", 256 << 20).unwrap();
    succeed(&[os("mkfs"), target.as_os_str()]);
    let stream = scratch.path().join("stream");
    let (first, second) = (at(&source, "/first"), at(&source, "/second"));

    let sent = succeed(&[os("send"), os("-f"), stream.as_os_str(), &first]);
    assert_eq!(
        text(&sent.stderr),
        format!("At subvol {}\n", first.display())
    );
    succeed(&[
        os("receive"),
        os("-f"),
        stream.as_os_str(),
        &at(&target, "/"),
    ]);
    let whole = succeed(&[os("send"), &second]).stdout;
    let sent = succeed(&[os("send"), os("-q"), os("-c"), &first, &second]);
    assert_eq!(text(&sent.stderr), "");
    let by_name = succeed(&[os("send"), os("-p"), &first, &second]).stdout;
    assert!(sent.stdout == by_name && by_name.len() < whole.len() * 2 / 3);
    fs::write(&stream, by_name).unwrap();
    succeed(&[
        os("receive"),
        os("-f"),
        stream.as_os_str(),
        &at(&target, "/"),
    ]);
    for number in [0, 1] {
        let path = format!("/second/file {number}");
        let read = succeed(&[os("cat"), &at(&target, &path)]).stdout;
        assert!(read == vec![b'a' + number; 300_000], "{path}");
    }

    let both = succeed(&[os("send"), os("-e"), &first, &second]).stdout;
    let apart = succeed(&[os("send"), &first, &second]).stdout;
    // One header and one end command less.
    assert_eq!(apart.len() - both.len(), 17 + 10);
}

#[test]
fn refusals_have_the_words_of_btrfs_progs() {
    let scratch = Scratch::new().unwrap();
    let source = image(&scratch, "source");
    let at = |path: &str| at(&source, path);
    let (live, first, second) = (at("/live"), at("/first"), at("/second"));
    let send = os("send");
    refused(
        &[send, &live],
        &format!("subvolume {} is not read-only", live.display()),
    );
    refused(&[send, os("-p"), &live, &first], "parent subvolume ");
    refused(&[send, os("-c"), &live, &first], "cloned subvolume ");
    refused(
        &[send, os("-p"), &first, os("-p"), &first, &second],
        "you cannot have more than one parent (-p)",
    );
    refused(
        &[
            send,
            os("--proto"),
            os("1"),
            os("--compressed-data"),
            &first,
        ],
        "--compressed-data requires protocol version >= 2 (requested 1)",
    );
    refused(&[send, os("--proto"), os("3"), &first], "version 3");
    refused(&[send, &at("/live/file 0")], "not a subvolume");
    refused(
        &[send, os("-f"), source.as_os_str(), &first],
        "it is the image that is read",
    );
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&source, &link).unwrap();
    refused(
        &[send, os("-f"), link.as_os_str(), &first],
        "it is the image that is read",
    );
    let other = scratch.file("other", 256 << 20).unwrap();
    succeed(&[os("mkfs"), other.as_os_str()]);
    refused(
        &[send, os("-f"), other.as_os_str(), &first],
        "it holds a btrfs volume",
    );
    succeed(&[os("check"), os("-q"), other.as_os_str()]);
    refused(
        &[send, &first, other.as_os_str()],
        "all subvolumes must be from the same filesystem",
    );
}

#[test]
fn a_reader_that_goes_away_is_reported() {
    let scratch = Scratch::new().unwrap();
    let source = image(&scratch, "source");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args([os("send"), &at(&source, "/second")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 17];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let messages = text(&output.stderr);
    assert!(
        messages.contains("ERROR: failed to write the stream: Broken pipe"),
        "{messages}"
    );
}

/// A user without other processes.
const LONELY_USER: u32 = 65_531;

/// Send uses threads for parts of its work, and also works without them.
#[test]
fn a_user_without_threads_sends_the_same() {
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let open_to_all =
        |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    let program = ubtrfs_sim::share_program(env!("CARGO_BIN_EXE_ubtrfs"), scratch.path()).unwrap();
    let mut version = Command::new(&program);
    version.arg("--version").uid(LONELY_USER).gid(LONELY_USER);
    if !version.output().is_ok_and(|said| said.status.success()) {
        ubtrfs_sim::skip_optional("needs a folder that is open to all");
        return;
    }
    let source = image(&scratch, "source");
    let data = scratch.path().join("data");
    // A file that is normally read by a separate thread.
    fs::write(&data, b"large".repeat(2 << 20)).unwrap();
    succeed(&[os("cp"), data.as_os_str(), &at(&source, "/live/large")]);
    let snapshot = [os("subvolume"), os("snapshot"), os("-r")];
    succeed(
        &[
            &snapshot[..],
            &[&at(&source, "/live"), &at(&source, "/third")],
        ]
        .concat(),
    );
    open_to_all(&source);

    let alone = |program: &OsStr, args: &[&OsStr]| {
        let mut command = Command::new("prlimit");
        command
            .args([os("--nproc=1"), os("--"), program])
            .args(args);
        command.uid(LONELY_USER).gid(LONELY_USER).current_dir("/");
        command.env("RUST_BACKTRACE", "0").output().unwrap()
    };
    let forks = alone(os("sh"), &[os("-c"), os("true & wait $!")]);
    assert!(!forks.status.success(), "the limit is none here");
    for parent in [None, Some(at(&source, "/first"))] {
        let third = at(&source, "/third");
        let mut args = vec![os("send"), os("-q")];
        if let Some(parent) = &parent {
            args.extend([os("-p"), parent]);
        }
        args.push(&third);
        let wanted = succeed(&args).stdout;
        assert!(wanted.len() > 10 << 20);
        let sent = alone(program.as_os_str(), &args);
        let messages = text(&sent.stderr);
        assert!(sent.status.success(), "{args:?}: {messages}");
        assert!(sent.stdout == wanted, "{args:?}: {messages}");
    }
    let checked = alone(program.as_os_str(), &[os("check"), source.as_os_str()]);
    let messages = text(&checked.stderr);
    assert!(!messages.contains("panicked"), "{messages}");
    assert!(messages.contains("cannot start a thread"), "{messages}");
}

#[test]
fn a_mount_of_ours_sends_what_its_image_sends() {
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = image(&scratch, "source");
    let wanted = succeed(&[
        os("send"),
        os("-p"),
        &at(&source, "/first"),
        &at(&source, "/second"),
    ])
    .stdout;
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    succeed(&[os("mount"), source.as_os_str(), dir.as_os_str()]);
    let (first, second) = (dir.join("first"), dir.join("second"));
    let args = [os("send"), os("-p"), first.as_os_str(), second.as_os_str()];
    let by_pipe = ubtrfs(&args);
    let stream = scratch.path().join("stream");
    // The existing contents are overwritten.
    fs::write(&stream, vec![b'x'; wanted.len() + 100]).unwrap();
    let by_file = ubtrfs(&[&args[..], &[os("-f"), stream.as_os_str()]].concat());
    let len_bytes = fs::metadata(&source).unwrap().len();
    let to_image = ubtrfs(&[&args[..], &[os("-f"), source.as_os_str()]].concat());
    succeed(&[os("umount"), dir.as_os_str()]);
    assert!(!to_image.status.success());
    let said = text(&to_image.stderr);
    assert!(said.contains("the image that is read"), "{said}");
    assert_eq!(fs::metadata(&source).unwrap().len(), len_bytes);
    succeed(&[os("check"), source.as_os_str()]);
    assert!(by_pipe.status.success(), "{}", text(&by_pipe.stderr));
    assert!(by_file.status.success(), "{}", text(&by_file.stderr));
    assert!(by_pipe.stdout == wanted);
    assert!(fs::read(stream).unwrap() == wanted);
}

#[test]
fn a_mount_of_the_kernel_sends_by_ioctl() {
    if !available_or_skip() {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let live = mount.path().join("live");
    let btrfs = |args: &[&OsStr]| {
        let output = run("btrfs", args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
    };
    btrfs(&[os("subvolume"), os("create"), live.as_os_str()]);
    let snapshots = ["first", "second"].map(|name| mount.path().join(name));
    for snapshot in &snapshots {
        fs::write(live.join(snapshot.file_name().unwrap()), [7; 5000]).unwrap();
        btrfs(&[
            os("subvolume"),
            os("snapshot"),
            os("-r"),
            live.as_os_str(),
            snapshot.as_os_str(),
        ]);
    }
    let [first, second] = &snapshots;
    let (ours, theirs) = (volume.dir().join("ours"), volume.dir().join("theirs"));
    for options in [&["-p"][..], &["--proto", "2", "-c"], &["-e", "-p"]] {
        let with = |file: &Path| -> Vec<OsString> {
            let mut args = vec![OsString::from("send"), "-f".into(), file.into()];
            args.extend(options.iter().map(OsString::from));
            args.extend([first.into(), second.into()]);
            args
        };
        let output = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
            .args(with(&ours))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{options:?}: {}",
            text(&output.stderr)
        );
        let output = Command::new("btrfs").args(with(&theirs)).output().unwrap();
        assert!(
            output.status.success(),
            "{options:?}: {}",
            text(&output.stderr)
        );
        assert!(
            fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(),
            "{options:?}"
        );
    }
    let live = live.display();
    refused(
        &[
            os("send"),
            os("-f"),
            ours.as_os_str(),
            os(&live.to_string()),
        ],
        "is not read-only",
    );
}
