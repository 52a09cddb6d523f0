//! Commands by ioctls: on mounts of the kernel's btrfs, and on our mounts by users whom the server does not
//! serve.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use crate::callers::{
    Program, USER, as_user, assert_as_kernel, assert_same_but_times, furnish, on_kernels_mount,
    said,
};
use crate::mounted::Mounted;
use crate::process::{Waiting, empty_volume, judge, location, succeed};
use crate::subvolumes::{self, COMMANDS, assert_as_progs, listed, words};

const ALLOWED: &str = "user_subvol_rm_allowed";

/// Commands that only read. A word that begins with '@' is a path in the volume.
const READING: &[&str] = &[
    "subvolume list @",
    "subvolume list -a @",
    "subvolume list -o @",
    "subvolume list -pcguqR @",
    "subvolume list -t @",
    "subvolume list -s @",
    "subvolume list -r @home",
    "subvolume list --sort=-path @",
    "subvolume list -a @home/mine",
    "subvolume list -o @home/mine",
    "subvolume list -G +1 @",
    "subvolume list -d @",
    "subvolume list @shut",
    "subvolume list @none",
    "subvolume get-default @",
    "filesystem df @",
    "filesystem df -b @",
    "--format json filesystem df @",
    "filesystem usage -b @",
    "filesystem label @home/mine",
    "property get @home/frozen",
    "property get @home/roots ro",
    "property get @home/dir",
    "property get @home/mine/file",
    "property get @shut ro",
    "property list @",
    "property list @home",
    "property list @home/mine",
    "inspect-internal rootid @home/mine",
    "inspect-internal rootid @home/dir",
    "inspect-internal rootid @shut",
];

/// Commands about devices, which show users less than root.
const READING_DEVICES: &[&str] = &[
    "filesystem usage -T @",
    "filesystem show @",
    "filesystem show --raw @",
    "device usage @",
    "device usage -b @",
    "device stats @",
    "device stats -c @",
    "--format json device stats @",
    "device stats @home",
    "inspect-internal min-dev-size @",
    "inspect-internal min-dev-size --id 2 @home",
    "inspect-internal subvolid-resolve 256 @",
    "inspect-internal subvolid-resolve 258 @home",
    "inspect-internal subvolid-resolve 5 @",
    "inspect-internal subvolid-resolve 99999 @",
    "inspect-internal inode-resolve 257 @home/mine",
    "inspect-internal inode-resolve 258 @",
    "inspect-internal inode-resolve 99999 @",
    "filesystem du @",
    "filesystem du -s --raw @",
    "filesystem du @home/mine",
    "filesystem du -s @home @shut",
    "filesystem du @home/mine/file",
    "filesystem du @none",
];

/// Commands that btrfs-progs does not have, or does not allow users to run.
const READING_MORE: &[&str] = &[
    "subvolume list --format json -u @",
    "subvolume show @",
    "subvolume show @home/mine",
    "subvolume show --format json @home/frozen",
    "subvolume show @home/dir",
    "subvolume show @shut/inner",
    "subvolume show -r 256 @",
    "filesystem label @",
    "filesystem label --format json @",
    "property get @",
    "property get --format json @",
    "filesystem df --degraded @",
];

fn fill(image: &Path) {
    furnish(image);
    for name in ["shut/inner", "home/mine/below"] {
        succeed([
            "subvolume".into(),
            "create".into(),
            "-q".into(),
            location(image, name),
        ]);
    }
    let snapshot = ["subvolume", "snapshot", "-qr"].map(OsString::from);
    let paths = ["home/mine", "home/snap"].map(|path| location(image, path));
    succeed(snapshot.into_iter().chain(paths));
}

fn run(program: &Path, user: u32, command: &str, dir: &Path) -> Output {
    let at = |path: &str| match path {
        "" => dir.into(),
        path => dir.join(path).into(),
    };
    let mut program = Command::new(program);
    let program = program.args(words(command, at)).uid(user).gid(user);
    program.output().unwrap()
}

fn text(output: &Output, dir: &Path) -> (Option<i32>, String, usize) {
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.replace(dir.to_str().unwrap(), "@");
    (output.status.code(), text, output.stderr.len().min(1))
}

fn without(label: &str, text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains(label));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn commands_change_the_kernels_mount_as_btrfs_progs_does() {
    if !or_skip("commands_change_the_kernels_mount_as_btrfs_progs_does") {
        return;
    }
    let (_scratch, theirs) = empty_volume();
    let ours = theirs.with_file_name("ours.img");
    fs::copy(&theirs, &ours).unwrap();
    let expected = subvolumes::on_kernels_mount(&theirs, "btrfs");
    let found = subvolumes::on_kernels_mount(&ours, env!("CARGO_BIN_EXE_ubtrfs"));
    for ((command, found), expected) in COMMANDS.iter().zip(&found).zip(&expected) {
        assert_as_progs(command, found, expected, "");
    }
    assert_eq!(listed(&ours), listed(&theirs));
    assert_same_but_times("by ioctls", &theirs, &ours);
}

/// Commands about quota groups. A word that begins with '@' is a path in the volume.
const ON_QUOTA_GROUPS: &[&str] = &[
    "subvolume create -i 1/0 @one",
    "subvolume create -i 1/0 -i 1/1 @two @three",
    "subvolume create -i 9/9 @none",
    "subvolume create -i 0/99999 @none",
    "subvolume create -i abc @none",
    "subvolume create -i 5 @none",
    "subvolume create -i 0/0 @none",
    "subvolume create -i 65536/1 @none",
    "subvolume snapshot -i 1/1 @one @snap",
    "subvolume snapshot -r -i 1/0 -i 1/1 @one @frozen",
    "subvolume snapshot -i nothing @one @none",
];

/// Runs the commands on the kernel's mount. Returns their results, and the resulting quota groups.
fn with_quota_groups(program: &Path, image: &Path) -> (Vec<(bool, String)>, String) {
    let volume = KernelVolume::of_files(vec![image.to_owned()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let dir = mount.path();
    let progs = |command: &str| {
        let output = run(Path::new("btrfs"), 0, command, dir);
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for command in [
        "quota enable @",
        "qgroup create 1/0 @",
        "qgroup create 1/1 @",
    ] {
        progs(command);
    }
    let ended = ON_QUOTA_GROUPS.iter().map(|command| {
        let output = run(program, 0, command, dir);
        (output.status.success(), text(&output, dir).1)
    });
    let ended = ended.collect();
    let groups = progs("qgroup show -pc @");
    mount.unmount().unwrap();
    (ended, groups)
}

#[test]
fn new_subvolumes_join_quota_groups_on_the_kernels_mount() {
    if !or_skip("new_subvolumes_join_quota_groups_on_the_kernels_mount") {
        return;
    }
    let (_scratch, theirs) = empty_volume();
    let ours = theirs.with_file_name("ours.img");
    fs::copy(&theirs, &ours).unwrap();
    let (expected, groups) = with_quota_groups(Path::new("btrfs"), &theirs);
    let program = Path::new(env!("CARGO_BIN_EXE_ubtrfs"));
    let (ended, found) = with_quota_groups(program, &ours);
    for ((command, ended), expected) in ON_QUOTA_GROUPS.iter().zip(ended).zip(expected) {
        assert_eq!(ended, expected, "{command}");
    }
    assert!(groups.contains(" 1/0,1/1 "), "{groups}");
    assert_eq!(found, groups);
}

#[test]
fn a_user_may_on_the_kernels_mount_what_btrfs_progs_may() {
    if !or_skip("a_user_may_on_the_kernels_mount_what_btrfs_progs_may") {
        return;
    }
    let Some(program) = Program::new() else {
        return;
    };
    for options in ["", ALLOWED] {
        let (_scratch, theirs) = empty_volume();
        furnish(&theirs);
        let ours = theirs.with_file_name("ours.img");
        fs::copy(&theirs, &ours).unwrap();
        let expected = on_kernels_mount(Path::new("btrfs"), &theirs, options);
        let outcomes = on_kernels_mount(program.path(), &ours, options);
        assert_as_kernel(options, &outcomes, &expected);
        assert_same_but_times(options, &theirs, &ours);
    }
}

#[test]
fn a_user_may_on_the_mount_of_another_what_the_kernel_lets_him() {
    if !or_skip("a_user_may_on_the_mount_of_another_what_the_kernel_lets_him") {
        return;
    }
    let Some(program) = Program::new() else {
        return;
    };
    for options in ["", ALLOWED] {
        let (_scratch, theirs) = empty_volume();
        let copied = |image: &Path| {
            furnish(image);
            fs::copy(image, &theirs).unwrap();
        };
        let Some(mounted) = Mounted::new(&format!("rw,{options}"), copied) else {
            return;
        };
        let expected = on_kernels_mount(Path::new("btrfs"), &theirs, options);
        let outcomes = as_user(program.path(), |path| match path {
            "" => mounted.dir.clone().into(),
            path => mounted.dir.join(path).into(),
        });
        mounted.unmount();
        assert_as_kernel(options, &outcomes, &expected);
        assert_same_but_times(options, &theirs, &mounted.image);
    }
}

#[test]
fn a_user_is_shown_of_each_mount_what_he_may_see() {
    if !or_skip("a_user_is_shown_of_each_mount_what_he_may_see") {
        return;
    }
    let Some(program) = Program::new() else {
        return;
    };
    let (_scratch, image) = empty_volume();
    fill(&image);
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    let kernels = volume.mount("ro").unwrap();
    let progs = Path::new("btrfs");
    for command in READING.iter().chain(READING_DEVICES) {
        let root = [progs, program.path()].map(|program| run(program, 0, command, kernels.path()));
        let [theirs, ours] = root.each_ref().map(|said| text(said, kernels.path()));
        assert_eq!(ours, theirs, "{command}: {}", said(&root[1]));
    }
    let all = READING.iter().chain(READING_MORE);
    let by_kernel: Vec<_> = all
        .clone()
        .map(|command| {
            let ours = run(program.path(), USER, command, kernels.path());
            if READING.contains(command) {
                let theirs = run(progs, USER, command, kernels.path());
                // For a user who may not open a device, btrfs-progs shows a wrong length of it.
                let plain = |output: &Output| {
                    without("Device slack", &String::from_utf8_lossy(&output.stdout))
                };
                let [text, expected] = [&ours, &theirs].map(plain);
                let is_like = !theirs.status.success() || text == expected;
                assert!(is_like, "{command}: {ours:?}, btrfs-progs: {theirs:?}");
            }
            (command, text(&ours, kernels.path()))
        })
        .collect();
    kernels.unmount().unwrap();
    let said_of = |command: &str| {
        let mut all = by_kernel.iter();
        let (_, (code, text, _)) = all.find(|(of, _)| **of == command).unwrap();
        (*code, text.clone())
    };
    let (code, list) = said_of("subvolume list @");
    assert_eq!(code, Some(0));
    for path in ["home/mine", "home/mine/below", "open/roots", "sticky/mine"] {
        let line = format!(" path {path}\n");
        assert!(list.contains(&line), "{list}");
    }
    assert!(!list.contains("inner"), "{list}");
    let (code, shown) = said_of("subvolume show @home/mine");
    assert_eq!(code, Some(0));
    assert!(shown.starts_with("home/mine\n"), "{shown}");
    assert!(shown.contains("\t\t\t\thome/snap\n"), "{shown}");
    for refused in ["subvolume list -d @", "subvolume show @shut/inner"] {
        assert_eq!(said_of(refused).0, Some(1), "{refused}");
    }

    let copied = |ours: &Path| {
        fs::copy(&image, ours).unwrap();
    };
    let Some(mounted) = Mounted::new("ro", copied) else {
        return;
    };
    for (command, expected) in by_kernel {
        let output = run(program.path(), USER, command, &mounted.dir);
        let (code, found, said_more) = text(&output, &mounted.dir);
        // On a read-only mount the kernel does not count free space in block groups.
        let [found, seen] = [&found, &expected.1].map(|text| without("(statfs, df)", text));
        let expected = (expected.0, seen, expected.2);
        assert_eq!(
            (code, found, said_more),
            expected,
            "{command}: {}",
            said(&output)
        );
    }
    mounted.unmount();
    judge(&image);
}

/// Returns the output of a program, without places and times. Generations are replaced by numbers.
fn lines_of(program: &Path, command: &str, dir: &Path) -> (Option<i32>, String) {
    let output = run(program, 0, command, dir);
    let (code, text, _) = text(&output, dir);
    (code, text)
}

/// Mounts another volume, and a subvolume a second time, below `dir/d`: neither adds anything.
fn measured_without_other_volumes(program: &Path, dir: &Path) {
    let alone = lines_of(program, "filesystem du -s --raw @d", dir);
    assert_eq!(alone.0, Some(0), "{alone:?}");
    let other = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = other.mount("").unwrap();
    fs::write(mount.path().join("file"), vec![7; 300_000]).unwrap();
    let places = ["d/other", "d/again"].map(|place| dir.join(place));
    for (from, place) in [mount.path(), &dir.join("d/e")].into_iter().zip(&places) {
        fs::create_dir(place).unwrap();
        rustix::mount::mount_bind(from, place).unwrap();
    }
    let beside = lines_of(program, "filesystem du -s --raw @d", dir);
    for place in &places {
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::empty()).unwrap();
        fs::remove_dir(place).unwrap();
    }
    mount.unmount().unwrap();
    assert_eq!(beside, alone);
}

#[test]
fn contents_are_found_on_the_kernels_mount_as_by_btrfs_progs() {
    let name = "contents_are_found_on_the_kernels_mount_as_by_btrfs_progs";
    if !or_skip(name) {
        return;
    }
    let (_scratch, image) = empty_volume();
    fill(&image);
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let dir = mount.path();
    fs::create_dir_all(dir.join("d/e")).unwrap();
    fs::write(dir.join("d/e/file"), vec![7; 300_000]).unwrap();
    fs::hard_link(dir.join("d/e/file"), dir.join("d/hard")).unwrap();
    fs::write(dir.join("small"), "small").unwrap();
    let copied = Command::new("cp")
        .arg("--reflink=always")
        .args([dir.join("d/e/file"), dir.join("home/mine/clone")])
        .status();
    assert!(copied.unwrap().success());
    let [progs, ours] = [Path::new("btrfs"), Path::new(env!("CARGO_BIN_EXE_ubtrfs"))];
    for command in [
        "subvolume find-new @ 0",
        "subvolume find-new @home/mine 0",
        "subvolume find-new @home/mine 99999",
        "filesystem du @",
        "filesystem du -s @d @home @small",
    ] {
        let expected = lines_of(progs, command, dir);
        assert_eq!(lines_of(ours, command, dir), expected, "{command}");
    }
    measured_without_other_volumes(ours, dir);
    for command in [
        "inspect-internal list-chunks @",
        "inspect-internal list-chunks --raw --sort lstart @home",
    ] {
        // btrfs-progs does not support the block group tree: for such a volume it reports that nothing is
        // used.
        let without_use = |program: &Path| -> Vec<String> {
            let listed = lines_of(program, command, dir).1;
            let lines = listed.lines().map(|line| line.rsplit_once(' ').unwrap().0);
            lines.map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(without_use(ours), without_use(progs), "{command}");
    }
    let found = lines_of(ours, "subvolume find-new @ 0", dir).1;
    let line = found
        .lines()
        .find(|line| line.ends_with(" d/hard"))
        .unwrap();
    let word = |name: &str| {
        let mut words = line.split(' ').skip_while(|word| *word != name);
        words.nth(1).unwrap().to_owned()
    };
    let (start, inode) = (word("start"), word("inode"));
    let paths = format!("inspect-internal inode-resolve {inode} @");
    let expected = lines_of(progs, &paths, dir);
    assert_eq!(expected.1, "@/d/hard\n@/d/e/file\n");
    assert_eq!(lines_of(ours, &paths, dir), expected);
    for options in ["-P", "-Po"] {
        let users = format!("inspect-internal logical-resolve {options} {start} @");
        let sorted = |(code, text): (Option<i32>, String)| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (code, lines)
        };
        let expected = sorted(lines_of(progs, &users, dir));
        assert_eq!(expected.1.len(), 2, "{expected:?}");
        assert_eq!(sorted(lines_of(ours, &users, dir)), expected);
    }
    // btrfs-progs does not look into subvolumes that are not mounted separately.
    let users = format!("inspect-internal logical-resolve {start} @");
    let found = lines_of(ours, &users, dir).1;
    assert_eq!(found, "@/d/hard\n@/d/e/file\n@/home/mine/clone\n");
    assert_eq!(
        lines_of(ours, "inspect-internal logical-resolve 1 @", dir).0,
        Some(1)
    );
    mount.unmount().unwrap();
}

#[test]
fn deleted_subvolumes_are_waited_for_on_the_kernels_mount() {
    if !or_skip("deleted_subvolumes_are_waited_for_on_the_kernels_mount") {
        return;
    }
    let (_scratch, image) = empty_volume();
    fill(&image);
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let ours = Path::new(env!("CARGO_BIN_EXE_ubtrfs"));
    let run = |command: &str| lines_of(ours, command, mount.path());
    assert_eq!(run("subvolume sync @"), (Some(0), String::new()));
    let id = run("inspect-internal rootid @home/snap").1;
    let id = id.trim();
    // The command waits for a subvolume that is not deleted yet.
    let waiting = Waiting::start(mount.path(), id);
    assert_eq!(run("-q subvolume delete @home/snap").0, Some(0));
    waiting.end(id);
    let expected = format!("Waiting for 1 subvolume\nSubvolume id {id} is gone (1/1)\n");
    assert_eq!(run(&format!("subvolume sync @ {id}")), (Some(0), expected));
    mount.unmount().unwrap();
}

#[test]
fn devices_of_a_seed_count_on_the_kernels_mount_as_for_btrfs_progs() {
    if !or_skip("devices_of_a_seed_count_on_the_kernels_mount_as_for_btrfs_progs") {
        return;
    }
    let (_scratch, seed) = empty_volume();
    let mut volume = KernelVolume::of_files(vec![seed], Scratch::new().unwrap());
    let mount = volume.sprout(512 << 20).unwrap();
    let ours = Path::new(env!("CARGO_BIN_EXE_ubtrfs"));
    for command in ["filesystem show @", "filesystem show --raw @"] {
        let said = lines_of(ours, command, mount.path());
        let theirs = lines_of(Path::new("btrfs"), command, mount.path());
        assert_eq!(said, theirs, "{command}");
        assert!(said.1.contains("Total devices 2 "), "{}", said.1);
    }
    mount.unmount().unwrap();
}
