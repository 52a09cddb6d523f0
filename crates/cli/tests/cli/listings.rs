//! Listings compared with btrfs-progs on the kernel's mount of the same volume, and with ls(1).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{KernelMount, Profile, or_skip};
use ubtrfs_sim::manifest::Entry;
use ubtrfs_sim::matrix::{Case, Features, Filled};
use ubtrfs_sim::seed;

use crate::process::{both_outputs, location, other_devices, succeed, ubtrfs};

/// Commands on the whole volume, whose output must be identical byte for byte.
const SAME: &[&str] = &[
    "subvolume list",
    "subvolume list -p -c -g -u -q -R",
    "subvolume list -t -p -c -g -u -q -R",
    "subvolume list -a",
    "subvolume list -o",
    "subvolume list -s",
    "subvolume list -r",
    "subvolume list -d",
    "subvolume list --sort=-path",
    "subvolume list --sort=gen,-rootid",
    "subvolume list -G +9",
    "subvolume list -C -9",
    "subvolume get-default",
    "subvolume show",
    "filesystem df",
    "filesystem df -b",
    "filesystem df -H",
    "filesystem df -k",
    "filesystem df -t --si",
    "--format json filesystem df",
    "device stats",
    "device stats -c",
    "--format json device stats",
    "inspect-internal min-dev-size",
    "inspect-internal min-dev-size --id 2",
    "inspect-internal min-dev-size --id 3",
    "filesystem usage",
    "filesystem usage -b",
    "filesystem usage --si -m",
    "filesystem show",
    "filesystem show --raw",
    "filesystem label",
    "device usage",
    "device usage --raw",
    "inspect-internal list-chunks",
    "inspect-internal list-chunks --raw --sort lstart",
    "inspect-internal list-chunks --kbytes --sort length",
    "inspect-internal rootid",
    "filesystem du -s --raw",
    "filesystem du",
];

/// Commands with columns as wide as the paths of the devices.
const SAME_WORDS: &[&str] = &[
    "filesystem usage -T",
    "filesystem usage -T --si",
    "device stats -T",
];

fn build(profile: Profile, name: &str) -> Filled {
    Case::of_profile(profile)
        .build(&Scale::tiny(), seed(name))
        .unwrap()
}

fn theirs(mount: &KernelMount, command: &str, path: &str) -> String {
    let mut at = mount.path().to_path_buf();
    if !path.is_empty() {
        at.push(path);
    }
    both_outputs(Command::new("btrfs").args(command.split(' ')).arg(at))
}

fn ours(devices: &[PathBuf], command: &str, path: &str) -> String {
    let mut at = devices[0].clone().into_os_string();
    if !path.is_empty() {
        at = location(&devices[0], path);
    }
    both_outputs(
        ubtrfs()
            .args(command.split(' '))
            .arg(at)
            .args(other_devices(devices)),
    )
}

/// Lines with wrong values in btrfs-progs 6.14. For a subvolume that was never sent, the time of the send is
/// the creation time. Limits that are not set contain uninitialized memory of its mkfs.
const MADE_UP: [&str; 3] = ["Send time:", "Limit referenced:", "Limit exclusive:"];

/// Rewrites the paths in the output of btrfs-progs to ours, and removes the lines with wrong values.
fn normal(text: &str, mount: &Path, loops: &[PathBuf], devices: &[PathBuf]) -> String {
    let mut text = text.to_owned();
    // /dev/loop1 is the beginning of /dev/loop10.
    let mut pairs: Vec<_> = loops.iter().zip(devices).collect();
    pairs.sort_by_key(|(loop_device, _)| Reverse(loop_device.as_os_str().len()));
    for (loop_device, device) in pairs {
        text = text.replace(
            &loop_device.display().to_string(),
            &device.display().to_string(),
        );
    }
    let (mount, image) = (
        mount.display().to_string(),
        devices[0].display().to_string(),
    );
    text = text.replace(&format!("{mount}/"), &format!("{image}:/"));
    text = text.replace(&mount, &format!("{image}:/"));
    let is_kept = |line: &&str| !MADE_UP.iter().any(|made_up| line.contains(made_up));
    let lines = text.lines().filter(is_kept);
    lines.map(|line| format!("{line}\n")).collect()
}

fn words(text: &str) -> Vec<&str> {
    let is_rule = |word: &str| word.bytes().all(|byte| byte == b'-') && word.len() > 1;
    text.split_whitespace()
        .filter(|word| !is_rule(word))
        .collect()
}

/// Fails with the first line that differs.
fn assert_same_lines(expected: &str, found: &str, command: &str) {
    let pairs = expected.lines().zip(found.lines());
    for (expected, found) in pairs {
        assert_eq!(expected, found, "{command}");
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{command}");
}

const GENERATIONS: [&str; 3] = ["0", "9", "99999"];

/// Returns the listings of files written since each of the generations, in the subvolume at `path`.
fn find_new_by_progs(mount: &KernelMount, path: &str) -> (String, Vec<String>) {
    let each = GENERATIONS.iter().map(|since| {
        let mut command = Command::new("btrfs");
        command.args(["subvolume", "find-new"]);
        both_outputs(command.arg(mount.path().join(path)).arg(since))
    });
    (path.to_owned(), each.collect())
}

/// Removes the parts that btrfs-progs cannot show because it reads 4 KiB at a time. For a file with too many
/// names it shows none of them, and it shows nothing of a link with such a long target.
fn within_its_buffer(text: &str, nameless: &str) -> String {
    let mut nameless = nameless.lines().filter(|line| !line.contains(LONGEST_LINK));
    let kept = text.lines().filter(|line| !line.contains(LONGEST_LINK));
    let shown = kept.map(|line| match nameless.next() {
        Some(other) if other.ends_with([' ', '/']) && line.starts_with(other) => other,
        _ => line,
    });
    shown.map(|line| format!("{line}\n")).collect()
}

const LONGEST_LINK: &str = "special/symlink-4095";

fn compare(filled: &Filled) {
    let devices = filled.volume.devices();
    // On a read-only device the kernel reports less free space.
    let mount = filled.volume.mount("").unwrap();
    mount.remount("ro").unwrap();
    let loops: Vec<PathBuf> = mount
        .loops()
        .iter()
        .map(|l| l.path().to_path_buf())
        .collect();
    let point = mount.path().to_path_buf();
    let clean = |text: &str| normal(text, &point, &loops, devices);
    // mkfs.btrfs creates data groups in addition to the mixed ones; the table of btrfs-progs then omits them.
    let tables = match filled.case.features {
        Features::Mixed => &[],
        _ => SAME_WORDS,
    };
    let subvolumes = theirs(&mount, "subvolume list", "");
    let mut commands: Vec<(String, String)> = SAME
        .iter()
        .chain(tables)
        .map(|&command| (command.to_owned(), String::new()))
        .collect();
    let mut written = vec![find_new_by_progs(&mount, "")];
    for line in subvolumes.lines() {
        let path = line.split_once(" path ").expect("a path in each line").1;
        written.push(find_new_by_progs(&mount, path));
        for command in ["subvolume show", "subvolume list", "subvolume list -o"] {
            commands.push((command.to_owned(), path.to_owned()));
        }
        let id = line.split(' ').nth(1).expect("an id in each line");
        commands.push((
            format!("inspect-internal subvolid-resolve {id}"),
            String::new(),
        ));
    }
    // The kernel returns only as many paths as fit into 4 KiB.
    let few = |entry: &&Entry| (2..10).contains(&entry.stat.nlink);
    let linked = filled.manifest.entries.iter().filter(few);
    let inodes: BTreeSet<u64> = linked.map(|entry| entry.stat.ino).take(4).collect();
    for ino in inodes {
        commands.push((
            format!("inspect-internal inode-resolve {ino}"),
            String::new(),
        ));
    }
    let expected: Vec<String> = commands
        .iter()
        .map(|(command, path)| clean(&theirs(&mount, command, path)))
        .collect();
    drop(mount);
    for (path, expected) in written {
        for (since, expected) in GENERATIONS.into_iter().zip(expected) {
            let mut command = ubtrfs();
            let at = location(&devices[0], &path);
            command.args(["subvolume", "find-new"]).arg(at).arg(since);
            let found = both_outputs(command.args(other_devices(devices)));
            let found = within_its_buffer(&found, &expected);
            let expected = within_its_buffer(&expected, &expected);
            assert_same_lines(&expected, &found, &format!("find-new {path} {since}"));
        }
    }
    for ((command, path), expected) in commands.iter().zip(expected) {
        let found = clean(&ours(devices, command, path));
        if SAME_WORDS.contains(&command.as_str()) {
            assert_eq!(words(&expected), words(&found), "{command} {path}");
        } else {
            assert_same_lines(&expected, &found, &format!("{command} {path}"));
        }
    }
}

#[test]
fn listings_of_one_device_are_those_of_btrfs_progs() {
    if or_skip("listings_of_one_device_are_those_of_btrfs_progs") {
        compare(&build(Profile::Dup, "listings dup"));
    }
}

#[test]
fn listings_of_several_devices_are_those_of_btrfs_progs() {
    if or_skip("listings_of_several_devices_are_those_of_btrfs_progs") {
        compare(&build(Profile::Raid10, "listings raid10"));
        compare(&build(Profile::Raid6, "listings raid6"));
    }
}

#[test]
fn listings_of_other_formats_are_those_of_btrfs_progs() {
    if !or_skip("listings_of_other_formats_are_those_of_btrfs_progs") {
        return;
    }
    let kinds = [
        (Features::Mixed, 4096),
        (Features::Oldest, 16_384),
        (Features::Quota, 16_384),
        (Features::MetadataUuid, 65_536),
    ];
    for (features, nodesize) in kinds {
        let case = Case {
            features,
            nodesize,
            ..Case::of_profile(Profile::Single)
        };
        let seed = seed(&format!("listings {case}"));
        compare(&case.build(&Scale::tiny(), seed).unwrap());
    }
}

#[test]
fn one_volume_is_shown_as_others_show_it() {
    if !or_skip("one_volume_is_shown_as_others_show_it") {
        return;
    }
    let filled = build(Profile::Single, "one volume");
    tree_stats_are_those_of_btrfs_progs(&filled);
    users_of_an_address_are_those_of_the_kernel(&filled);
    long_listing_is_that_of_ls(&filled);
    every_listing_has_json(&filled);
    a_reader_that_goes_away_ends_the_command_quietly(&filled);
    hostile_names_reach_no_terminal(&filled);
}

fn tree_stats_are_those_of_btrfs_progs(filled: &Filled) {
    let image = &filled.volume.devices()[0];
    let without_time = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("read time"));
        lines.map(str::to_owned).collect()
    };
    for args in [&["-b"][..], &[], &["-t", "2"], &["-t", "256"]] {
        let command = ["inspect-internal", "tree-stats"];
        let theirs = both_outputs(Command::new("btrfs").args(command).args(args).arg(image));
        let ours = both_outputs(ubtrfs().args(command).args(args).arg(image));
        assert_eq!(without_time(theirs), without_time(ours), "{args:?}");
    }
}

fn users_of_an_address_are_those_of_the_kernel(filled: &Filled) {
    let devices = filled.volume.devices();
    let mount = filled.volume.mount_ro().unwrap();
    let mut dump = Command::new("btrfs");
    dump.args(["inspect-internal", "dump-tree", "-t", "extent"]);
    let dump = both_outputs(dump.arg(mount.loops()[0].path()));
    let extents: Vec<u64> = dump
        .lines()
        .filter_map(|line| {
            line.split_once(" EXTENT_ITEM ")?
                .0
                .rsplit_once('(')?
                .1
                .parse()
                .ok()
        })
        .collect();
    assert!(extents.len() > 20);
    let mut expected = Vec::new();
    for logical in extents
        .iter()
        .step_by(7)
        .flat_map(|start| [*start, start + 4096])
    {
        for options in ["-P", "-P -o"] {
            let command = format!("inspect-internal logical-resolve {options} {logical}");
            let theirs = theirs(&mount, &command, "");
            expected.push((command, theirs));
        }
    }
    drop(mount);
    let sorted = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let mut compared = 0;
    for (command, expected) in expected {
        let found = ours(devices, &command, "");
        if expected.contains("ERROR") {
            assert!(found.contains("ERROR"), "{command}: {found}");
            continue;
        }
        compared += 1;
        assert_eq!(sorted(&expected), sorted(&found), "{command}");
    }
    assert!(compared > 5);
}

fn long_listing_is_that_of_ls(filled: &Filled) {
    let image = filled.volume.devices()[0].clone();
    let mount = filled.volume.mount_ro().unwrap();
    let mut long = Command::new("ls");
    long.args(["-l", "-A"]).arg(mount.path()).env("LC_ALL", "C");
    let expected = both_outputs(&mut long);
    let mut recursive = Command::new("ls");
    recursive
        .args(["-R", "-A", "."])
        .current_dir(mount.path())
        .env("LC_ALL", "C");
    let expected_recursive = recursive.output().unwrap().stdout;
    drop(mount);
    let found = both_outputs(ubtrfs().args(["ls", "-l", "-A"]).arg(&image));
    assert_same_lines(&expected, &found, "ls -lA");
    let found = succeed([OsString::from("ls"), "-RA".into(), image.clone().into()]);
    let found = String::from_utf8_lossy(&found).replace(&format!("{}:/", image.display()), "./");
    let found = found.replace("./:\n", ".:\n");
    assert_same_lines(
        &String::from_utf8_lossy(&expected_recursive),
        &found,
        "ls -RA",
    );
}

fn every_listing_has_json(filled: &Filled) {
    let image = &filled.volume.devices()[0];
    let commands = [
        "ls",
        "ls -R",
        "ls -l -a",
        "stat",
        "tree",
        "subvolume list -p -c -g -u -q -R -s",
        "subvolume show",
        "subvolume get-default",
        "filesystem df",
        "filesystem du",
        "filesystem label",
        "filesystem show",
        "filesystem usage",
        "device usage",
        "device stats",
        "getfattr",
        "inspect-internal dump-super -f",
        "inspect-internal min-dev-size",
        "inspect-internal list-chunks",
        "inspect-internal rootid",
        "inspect-internal tree-stats",
        "inspect-internal inode-resolve 257",
        "inspect-internal subvolid-resolve 256",
    ];
    for command in commands {
        let mut args: Vec<OsString> = vec!["--format".into(), "json".into()];
        args.extend(command.split(' ').map(OsString::from));
        args.push(image.into());
        let output = succeed(args);
        let json: serde_json::Value =
            serde_json::from_slice(&output).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_eq!(json["__header"]["version"], "1", "{command}");
        assert_eq!(json.as_object().unwrap().len(), 2, "{command}");
    }
    let output = succeed([
        OsString::from("ls"),
        "-R".into(),
        "--json".into(),
        image.into(),
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let listed = json["ls"].as_array().unwrap().len();
    assert_eq!(listed, filled.manifest.entries.len());
}

fn a_reader_that_goes_away_ends_the_command_quietly(filled: &Filled) {
    // The exit code that SIGPIPE would have caused.
    const GONE: i32 = 128 + 13;
    for command in [&["ls", "-R", "--json"][..], &["export", "--tar"]] {
        let mut child = ubtrfs()
            .args(command)
            .arg(&filled.volume.devices()[0])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command:?}");
        assert_eq!(output.status.code(), Some(GONE), "{command:?}");
    }
}

fn hostile_names_reach_no_terminal(filled: &Filled) {
    let image = &filled.volume.devices()[0];
    let mount = filled.volume.mount("").unwrap();
    std::fs::write(mount.path().join("evil\u{1b}[2Jname"), "").unwrap();
    mount.unmount().unwrap();
    // script(1) runs the command in a terminal.
    let command = format!("{} ls {}", env!("CARGO_BIN_EXE_ubtrfs"), image.display());
    let shown = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output();
    let Ok(shown) = shown else {
        ubtrfs_sim::skip("no script(1)");
        return;
    };
    assert!(!shown.stdout.contains(&0x1b));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains(r"$'evil\033[2Jname'"), "{shown}");
}
