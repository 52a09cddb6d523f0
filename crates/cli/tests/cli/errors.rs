//! Exit codes and messages for scripts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ubtrfs::{Access, Volume};
use ubtrfs_format::ids::RootId;
use ubtrfs_sim::craft::Crafted;

use crate::process::{fail, location, succeed, ubtrfs};

#[test]
fn a_uri_of_a_device_is_refused_by_its_scheme() {
    const URI: &str = "nbd+unix:///?socket=/run/s";
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.img");
    Volume::create(&image, 256 << 20).unwrap().close().unwrap();
    let (dir, image) = (dir.path().to_str().unwrap(), image.to_str().unwrap());
    let inner = &format!("{URI}:/etc");
    let commands: [&[&str]; 9] = [
        &["ls", inner],
        &["ls", URI],
        &["ls", "--device", URI, image],
        &["cp", inner, dir],
        &["mkdir", inner],
        &["check", URI],
        &["rescue", "zero-log", URI],
        &["inspect-internal", "dump-super", URI],
        &["mount", "-f", URI, dir],
    ];
    for command in commands {
        fail(
            command,
            "devices of the scheme 'nbd+unix' are not supported",
        );
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
}

#[test]
fn an_image_without_a_volume_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for command in ["ls", "tree", "stat", "cat"] {
        fail(
            [command.as_ref(), at("none").as_os_str()],
            "No such file or directory",
        );
        fail(
            [command.as_ref(), dir.path().as_os_str()],
            "is a directory, not an image",
        );
    }
    for command in ["df", "usage", "label"] {
        let args = [
            "filesystem".as_ref(),
            command.as_ref(),
            dir.path().as_os_str(),
        ];
        fail(args, "is a directory, not an image");
    }
    fs::write(at("empty"), "").unwrap();
    fail(
        ["ls".as_ref(), at("empty").as_os_str()],
        "not a btrfs device",
    );
    File::create(at("zeros")).unwrap().set_len(1 << 20).unwrap();
    fail(
        ["ls".as_ref(), at("zeros").as_os_str()],
        "not a btrfs device",
    );
    fail(["ls", "/dev/null"], "not an image file or a block device");
}

#[test]
fn usage_errors_exit_with_1() {
    for args in [
        &["nonsense"][..],
        &["ls"],
        &["ls", "--nonsense", "x"],
        &["filesystem", "nonsense"],
        &["export", "x"],
    ] {
        fail(args, "--help");
    }
    let help = ubtrfs()
        .args(["filesystem", "df", "--help"])
        .output()
        .unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
    for option in ["--version", "-V"] {
        assert!(succeed([option]).starts_with(b"ubtrfs "));
    }
}

#[test]
fn short_help_is_help() {
    for words in ["", "subvolume", "subvolume create", "mount"] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let help = succeed(words.iter().chain(&["--help"]));
        assert!(!help.is_empty());
        assert_eq!(succeed(words.iter().chain(&["-h"])), help, "{words:?}");
    }
    fail(["ls", "-h"], "required arguments");
    let dir = tempfile::tempdir().unwrap();
    let mkfs = dir.path().join("mkfs.btrfs");
    symlink(env!("CARGO_BIN_EXE_ubtrfs"), &mkfs).unwrap();
    let refused = Command::new(mkfs).arg("-h").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("ERROR: unexpected argument '-h' found\n"),
        "{said}"
    );
    assert!(
        said.contains("try '--help'") && !said.contains("as a value"),
        "{said}"
    );
}

#[test]
fn commands_and_options_may_be_shortened() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    for command in ["fi df", "sub li", "dev us", "insp rooti", "fi us --hum"] {
        let mut args: Vec<&std::ffi::OsStr> = command.split(' ').map(AsRef::as_ref).collect();
        args.push(none.as_os_str());
        fail(args, "cannot access");
    }
}

#[test]
fn a_link_named_btrfs_or_fsck_is_that_command() {
    let dir = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let link = dir.path().join(name);
        symlink(env!("CARGO_BIN_EXE_ubtrfs"), &link).unwrap();
        Command::new(link)
    };
    let output = link("btrfs")
        .args(["fi", "df", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output = link("mkfs.btrfs").arg("--help").output().unwrap();
    assert!(output.status.success());
    let fsck = link("fsck.btrfs")
        .arg("-a")
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(fsck.status.success() && fsck.stdout.is_empty());
    let fsck = Command::new(dir.path().join("fsck.btrfs"))
        .arg("/nonexistent")
        .output()
        .unwrap();
    assert_eq!(fsck.status.code(), Some(8));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(succeed(["completions", shell])).unwrap();
        assert!(script.contains("logical-resolve"), "{shell}");
        assert!(script.contains("user_subvol_rm_allowed"), "{shell}");
        assert!(!script.contains("ubtrfs-mount-options"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    succeed(["man".as_ref(), dir.path().as_os_str()]);
    for page in ["ubtrfs.1", "ubtrfs-cp.1", "ubtrfs-filesystem-usage.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    let page = fs::read_to_string(dir.path().join("ubtrfs-cp.1")).unwrap();
    let page = page.replace('\\', "");
    assert!(page.contains("[--device <DEVICE>]"), "{page}");
    assert!(page.contains("<SOURCE>... <DESTINATION>"), "{page}");
}

#[test]
fn bash_completes_the_last_of_several_mount_options() {
    let script = String::from_utf8(succeed(["completions", "bash"])).unwrap();
    let ask = "COMP_WORDS=(ubtrfs mount -o ro,commi); COMP_CWORD=3
        _ubtrfs ubtrfs ro,commi -o; echo \"${COMPREPLY[@]}\"";
    // The script is too long for an argument.
    let scratch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(scratch.path(), format!("{script}\n{ask}")).unwrap();
    let Ok(output) = Command::new("bash").arg(scratch.path()).output() else {
        ubtrfs_sim::skip("no bash");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ro,commit=\n");
}

#[test]
fn wrong_values_of_options_are_refused_before_help() {
    for (words, value) in [
        ("--format yaml help", "'yaml' for '--format"),
        ("--format yaml help ls", "'yaml' for '--format"),
        ("filesystem --format yaml help", "'yaml' for '--format"),
        ("--log loud help", "'loud' for '--log"),
    ] {
        fail(words.split(' '), &format!("invalid value {value}"));
    }
    let help = succeed(["--format", "json", "help"]);
    assert_eq!(help, succeed(["help"]));
    assert_eq!(succeed(["-q", "help", "ls"]), succeed(["help", "ls"]));
}

#[test]
fn a_signal_clears_the_progress_and_ends_the_command() {
    let (_scratch, image) = empty_volume();
    let ubtrfs = env!("CARGO_BIN_EXE_ubtrfs");
    // The pipe has an archive that never comes.
    let command = format!(
        "sleep 600 | exec {ubtrfs} import - {}",
        location(&image, "").display()
    );
    // script(1) gives the command a terminal, and its foreground. A caller in the background may ignore SIGINT.
    let child = Command::new("env")
        .args(["--default-signal", "script", "-qefc", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        ubtrfs_sim::skip("a_signal_clears_the_progress_and_ends_the_command: no script(1)");
        return;
    };
    let mut screen = child.stdout.take().unwrap();
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("B/s") {
        let mut bytes = [0; 256];
        let len = screen.read(&mut bytes).unwrap();
        assert_ne!(len, 0, "{}", shown.escape_ascii());
        shown.extend(&bytes[..len]);
    }
    const CTRL_C: u8 = 3;
    child.stdin.as_ref().unwrap().write_all(&[CTRL_C]).unwrap();
    screen.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    let shown = String::from_utf8_lossy(&shown);
    const CLEAR: &str = "\x1b[2K";
    let (_, left) = shown.rsplit_once(CLEAR).unwrap();
    assert_eq!(left.trim(), "", "{shown:?}");
    assert!(succeed(["ls".as_ref(), image.as_os_str()]).is_empty());
}

#[test]
fn work_that_fails_at_once_shows_no_progress() {
    let (_scratch, image) = empty_volume();
    let source = location(&image, "none");
    let ubtrfs = env!("CARGO_BIN_EXE_ubtrfs");
    let command = format!("{ubtrfs} cp -a {} /tmp", source.display());
    // script(1) runs the command in a terminal.
    let shown = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output();
    let Ok(shown) = shown else {
        ubtrfs_sim::skip("work_that_fails_at_once_shows_no_progress: no script(1)");
        return;
    };
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.starts_with("ERROR: "), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn bash_completes_paths_in_an_image() {
    if Command::new("bash").arg("--version").output().is_err() {
        ubtrfs_sim::skip("bash_completes_paths_in_an_image: no bash");
        return;
    }
    let (dir, image) = empty_volume();
    succeed([
        "mkdir".into(),
        location(&image, "etcetera"),
        location(&image, "other"),
    ]);
    succeed([
        "mkdir".into(),
        location(&image, "etcetera/a b"),
        location(&image, "etcetera/ab"),
    ]);
    let script = dir.path().join("completions");
    fs::write(&script, succeed(["completions", "bash"])).unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("etc-of-host")).unwrap();
    // Called as readline does it for a line that ends with the word, with and without the colon as a word
    // break.
    let complete = r#"
        cd "$1"; . completions; COMP_WORDBREAKS=$3
        COMP_LINE="ubtrfs ls $2" COMP_POINT=${#COMP_LINE}
        if [[ $3 == *:* && $2 == *:* ]]; then
            COMP_WORDS=(ubtrfs ls "${2%%:*}" : "${2#*:}")
        else
            COMP_WORDS=(ubtrfs ls "$2")
        fi
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        PATH=$4:$PATH
        _ubtrfs ubtrfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let name = image.file_name().unwrap().to_str().unwrap();
    let bin = PathBuf::from(env!("CARGO_BIN_EXE_ubtrfs"));
    let completed = |word: &str, breaks: &str| {
        let words = [word, breaks, bin.parent().unwrap().to_str().unwrap()];
        let output = Command::new("bash")
            .args(["--norc", "-c", complete, "bash"])
            .arg(image.parent().unwrap())
            .args(words)
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for (breaks, before) in [(" \t:", String::new()), (" \t", format!("{name}:"))] {
        let shown = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{before}{name}")).collect()
        };
        let all = completed(&format!("{name}:/"), breaks);
        assert_eq!(all, shown(&["/etcetera", "/other"]), "{breaks:?}");
        let one = completed(&format!("{name}:/et"), breaks);
        assert_eq!(one, shown(&["/etcetera"]), "{breaks:?}");
        let below = completed(&format!("{name}:/etcetera/a"), breaks);
        assert_eq!(
            below,
            shown(&["/etcetera/a\\ b", "/etcetera/ab"]),
            "{breaks:?}"
        );
    }
}

#[test]
fn options_may_stand_between_and_behind_operands() {
    let (dir, image) = empty_volume();
    fs::create_dir_all(dir.path().join("tree/below")).unwrap();
    let run = |line: &str| {
        let output = ubtrfs()
            .args(line.split(' '))
            .current_dir(&dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    run("cp tree -r v.img:/");
    run("cp v.img:/tree -r --subvol / v.img:/copy");
    run("cp -r tree -- v.img:/last");
    run("mv v.img:/copy -v v.img:/moved");
    run("ln a -s v.img:/link");
    let listed = succeed([OsStr::new("ls"), image.as_os_str()]);
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(listed, "last\nlink\nmoved\ntree\n");
    let operand = location(&image, "last");
    fail(
        [
            OsStr::new("cp"),
            operand.as_os_str(),
            OsStr::new("--nothing"),
        ],
        "--nothing",
    );
}

#[test]
fn cause_of_an_error_is_shown_once() {
    let (dir, image) = empty_volume();
    let none = dir.path().join("none");
    let root = location(&image, "");
    let none = none.as_os_str();
    for line in [
        vec![OsStr::new("check"), none],
        vec![
            OsStr::new("ls"),
            image.as_os_str(),
            OsStr::new("--device"),
            none,
        ],
        vec![OsStr::new("cp"), none, root.as_os_str()],
    ] {
        let output = fail(line, "No such file or directory");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
    }
}

/// Creates an empty volume, without the kernel.
fn empty_volume() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    let made = ubtrfs()
        .args(["mkfs", "-q", "-b", "128M"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    (dir, image)
}

#[test]
fn a_truncated_image_is_an_error() {
    let (_dir, path) = empty_volume();
    let len = fs::metadata(&path).unwrap().len();
    for cut in [len - 4096, len / 2, 1 << 20, 70_000, 65_536, 100] {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let output = ubtrfs().args(["ls", "-R"]).arg(&path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{cut}: {stderr}");
        assert!(
            stderr.contains("ERROR: ") && !stderr.contains("panicked"),
            "{stderr}"
        );
    }
}

#[test]
fn a_truncated_image_is_read_on_request() {
    let (_dir, path) = empty_volume();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(fs::metadata(&path).unwrap().len() - 4096)
        .unwrap();
    fail(["ls".as_ref(), path.as_os_str()], "'degraded' or 'rescue=");
    let listed = ubtrfs()
        .args(["ls", "--degraded"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

/// The exit code equals that of `btrfs filesystem label`.
#[test]
fn failures_of_label_exit_with_255() {
    let (dir, image) = empty_volume();
    let long = "a".repeat(256);
    let none = dir.path().join("none");
    for (path, label) in [(&image, Some(&long)), (&none, None), (&none, Some(&long))] {
        let mut command = ubtrfs();
        command.args(["filesystem", "label"]).arg(path).args(label);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{output:?}");
    }
}

#[test]
fn a_missing_path_or_subvolume_is_named() {
    let (_dir, image) = empty_volume();
    let missing = location(&image, "no/such/file");
    fail(["ls".as_ref(), missing.as_os_str()], "/no/such/file");
    let args = [
        "ls".as_ref(),
        "--subvolid".as_ref(),
        "99999".as_ref(),
        image.as_os_str(),
    ];
    fail(args, "subvolume 99999 does not exist");
    let args = [
        "ls".as_ref(),
        "--subvol".as_ref(),
        "nope".as_ref(),
        image.as_os_str(),
    ];
    fail(args, "cannot find subvolume 'nope'");
    succeed([
        "subvolume".as_ref(),
        "create".as_ref(),
        "-q".as_ref(),
        location(&image, "sub").as_os_str(),
    ]);
    succeed([
        "ln".as_ref(),
        "-s".as_ref(),
        "sub".as_ref(),
        location(&image, "link").as_os_str(),
    ]);
    let list = |subvolume: &str| {
        let words = ["ls", "--subvol", subvolume].map(OsString::from);
        words.into_iter().chain([image.clone().into_os_string()])
    };
    succeed(list("sub"));
    fail(list("link"), "'link' is not a subvolume");
    let args = [
        "cp".as_ref(),
        "-a".as_ref(),
        image.as_os_str(),
        "/nonexistent/dir".as_ref(),
    ];
    fail(args, "cannot make directory '/nonexistent/dir'");
}

/// Global options may be placed before the command or after it.
#[test]
fn verbose_and_quiet_are_taken_everywhere() {
    let (_dir, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let create = |options: &[&str], path: &str| {
        let mut args: Vec<std::ffi::OsString> = options.iter().map(Into::into).collect();
        args.extend(["subvolume".into(), "create".into()]);
        args.extend([at(path), "-q".into()]);
        succeed(args)
    };
    assert_eq!(create(&[], "a"), b"");
    assert_eq!(create(&["-v"], "b"), b"");
    for words in [
        "subvolume list -v",
        "subvolume list --quiet",
        "subvolume show --verbose",
        "filesystem df -v",
        "filesystem df -q",
        "filesystem du -v",
        "filesystem usage -vv",
        "filesystem show -v",
        "device usage -q",
        "property list -v",
        "inspect-internal dump-tree -v",
        "inspect-internal inode-resolve -v 256",
        "ls -q",
    ] {
        let mut args: Vec<std::ffi::OsString> = words.split(' ').map(Into::into).collect();
        args.push(image.clone().into());
        succeed(args);
    }
    let deleted = ["subvolume", "delete", "-v"].map(Into::into);
    let said = succeed(deleted.into_iter().chain([at("a")]));
    assert!(said.starts_with(b"Delete subvolume 256: "));
    succeed(["-v".into(), "touch".into(), at("file")]);
    let removed = succeed(["-v".into(), "rm".into(), at("file")]);
    assert!(removed.starts_with(b"removed "));
    // If the command defines the letter differently, that meaning is used.
    let listed = succeed(["subvolume".into(), "list".into(), "-q".into(), at("")]);
    assert!(String::from_utf8(listed).unwrap().contains("parent_uuid"));
}

#[test]
fn dry_run_is_refused_by_commands_that_cannot() {
    let (_dir, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    fail(
        [
            "--dry-run".into(),
            "subvolume".into(),
            "create".into(),
            at("a"),
        ],
        "--dry-run option not supported for create",
    );
    succeed(["subvolume".into(), "create".into(), at("a")]);
    let said = succeed([
        "--dry-run".into(),
        "subvolume".into(),
        "delete".into(),
        at("a"),
    ]);
    assert!(said.starts_with(b"Delete subvolume 256: "));
    succeed(["subvolume".into(), "show".into(), at("a")]);
}

#[test]
fn commands_that_only_btrfs_progs_has_are_refused_by_name() {
    let (_dir, image) = empty_volume();
    for (words, name) in [
        ("balance start /", "balance"),
        ("bal status -v /", "balance"),
        ("qgroup show /", "qgroup"),
        ("quota enable /", "quota"),
        ("rescue super-recover x", "rescue super-recover"),
        ("resc chunk-rec x", "rescue chunk-recover"),
        ("rescue clear-space-cache v1 x", "rescue clear-space-cache"),
        ("restore x /", "restore"),
        ("filesystem defragment -r /", "filesystem defragment"),
        ("filesystem mkswapfile x", "filesystem mkswapfile"),
        (
            "inspect-internal map-swapfile x",
            "inspect-internal map-swapfile",
        ),
    ] {
        fail(
            words.split(' '),
            &format!("'{name}' is not supported by ubtrfs"),
        );
    }
    fail(["subvolume", "nonsense"], "unrecognized subcommand");
    let help = succeed(["filesystem", "--help"]);
    assert!(String::from_utf8(help).unwrap().contains("defragment"));
    for verb in [&["create"][..], &["snapshot", "x"]] {
        let mut args = vec!["subvolume".into()];
        args.extend(verb.iter().map(std::ffi::OsString::from));
        args.extend(["-i".into(), "0/5".into(), location(&image, "a")]);
        fail(
            args,
            "-i is not supported: ubtrfs does not write quota groups",
        );
    }
    for option in [
        "--repair",
        "--init-csum-tree",
        "--init-extent-tree",
        "--clear-space-cache=v2",
        "--qgroup-report",
        "--subvol-extents=5",
    ] {
        let name = option.split('=').next().unwrap();
        let args = ["check".as_ref(), option.as_ref(), image.as_os_str()];
        fail(args, &format!("{name} is not supported: "));
    }
    fail(
        ["check".as_ref(), "-Q".as_ref(), image.as_os_str()],
        "--qgroup-report is not supported",
    );
}

#[test]
fn commands_without_a_listing_refuse_json() {
    let (_dir, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    for words in [
        "subvolume create",
        "subvolume delete",
        "subvolume sync",
        "filesystem sync",
        "inspect-internal dump-tree",
        "mkdir",
        "cat",
    ] {
        let mut args: Vec<std::ffi::OsString> = vec!["--format".into(), "json".into()];
        args.extend(words.split(' ').map(Into::into));
        args.push(at("a"));
        fail(args, "output format json is unsupported for this command");
    }
    fail(
        ["ls".into(), "--format".into(), "prometheus".into(), at("a")],
        "only 'filesystem stats' has the format prometheus",
    );
}

#[test]
fn superblock_has_json() {
    let (_dir, image) = empty_volume();
    let args = ["inspect-internal", "dump-super", "-fa", "--format", "json"];
    let args = args.iter().map(std::ffi::OsString::from);
    let list = succeed(args.chain([image.clone().into()]));
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let copies = list["dump-super"].as_array().unwrap();
    assert_eq!(copies.len(), 2);
    let offsets: Vec<u64> = copies
        .iter()
        .map(|c| c["bytenr"].as_u64().unwrap())
        .collect();
    assert_eq!(offsets, [64 << 10, 64 << 20]);
    for copy in copies {
        assert_eq!(copy["csum_match"], true);
        assert_eq!(copy["magic"], "_BHRfS_M");
        assert_eq!(copy["total_bytes"], 128 << 20);
        assert_eq!(copy["dev_item"]["devid"], 1);
        let names = copy["compat_ro_flags"]["names"].as_array().unwrap();
        assert!(names.iter().any(|name| name == "FREE_SPACE_TREE"));
        assert_eq!(copy["sys_chunk_array"][0]["type"], "System");
        assert_eq!(copy["backup_roots"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn help_says_where_a_path_in_a_mount_will_do() {
    let help = |words: &str| {
        let shown = succeed(words.split(' ').chain(["--help"]));
        String::from_utf8(shown).unwrap()
    };
    for words in [
        "subvolume create",
        "subvolume snapshot",
        "filesystem df",
        "filesystem sync",
        "property set",
        "device usage",
    ] {
        assert!(
            help(words).contains("A path in a mount of ubtrfs"),
            "{words}"
        );
    }
    assert!(help("filesystem sync").contains("of use in a mount"));
    assert!(!help("ls").contains("in a mount"));
}

#[test]
fn each_volume_that_takes_no_commit_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let images = ["one", "other"].map(|name| scratch.path().join(name));
    for image in &images {
        Volume::create(image, 256 << 20).unwrap().close().unwrap();
    }
    // Tree blocks are located behind this offset.
    let limited = "trap '' XFSZ; exec prlimit --fsize=20971520 \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_ubtrfs"), "touch"])
        .args(images.iter().map(|image| location(image, "file")))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let messages = String::from_utf8(output.stderr).unwrap();
    for image in &images {
        let failure = format!("cannot commit to '{}'", image.display());
        assert!(messages.contains(&failure), "{messages}");
    }
}

/// Users need these commands to find the readable parts of a damaged volume.
#[test]
fn subvolumes_are_listed_where_the_top_level_cannot_be_read() {
    let (_dir, image) = empty_volume();
    let volume = Volume::open(&image).unwrap();
    let made = volume.root().create_subvolume("/one").unwrap();
    made.write("/file", b"content").unwrap();
    let kept = volume.root().snapshot("/one", "/kept", Access::ReadOnly);
    let (one, kept) = (made.id(), kept.unwrap().id());
    volume.close().unwrap();
    drop(made);
    let at = |words: &str| {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        words.into_iter().chain([image.clone().into_os_string()])
    };
    let said = |words: &str| String::from_utf8(succeed(at(words))).unwrap();
    let commands = [
        "subvolume list".to_owned(),
        "subvolume show".to_owned(),
        format!("subvolume show -r {kept}"),
        "inspect-internal rootid".to_owned(),
        format!("inspect-internal inode-resolve --subvolid {one} 257"),
    ];
    let before: Vec<String> = commands.iter().map(|words| said(words)).collect();
    assert!(before[0].contains("path one") && before[0].contains("path kept"));

    let crafted = Crafted::load(std::slice::from_ref(&image));
    let file = File::options().write(true).open(&image).unwrap();
    for block in crafted.blocks_of(RootId::FS_TREE, 0) {
        for &(_, offset) in crafted.places(block) {
            let zeros = vec![0; crafted.nodesize()];
            file.write_all_at(&zeros, offset).unwrap();
        }
    }
    fail(at("ls"), "ERROR: ");
    for (words, before) in commands.iter().zip(before) {
        assert_eq!(said(words), before, "{words}");
    }
}
