//! Commands that change subvolumes, properties and labels have the same effect and output as btrfs-progs on
//! the kernel's mount.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, or_skip};

use crate::edits::write;
use crate::process::{empty_volume, fail, judged, location, succeed, ubtrfs};

/// Valid commands of both btrfs-progs and ours. A word that begins with '@' is a path in the volume.
pub(crate) const COMMANDS: &[&str] = &[
    "subvolume create @a @b",
    "subvolume create -p @x/y/z",
    "subvolume create -p @p/./q/r @p/x/./y",
    "subvolume create -p @miss/../c1",
    "subvolume create -p @p/./q/../../new/k/../c2 @x/more/.././c3",
    "subvolume create @gone/../c4",
    "subvolume create @a",
    "subvolume create @none/c",
    "subvolume create @a/inner",
    "subvolume snapshot @a @s1",
    "subvolume snapshot -r @a @s2",
    "subvolume snapshot @a @b",
    "subvolume snapshot @a @b",
    "subvolume snapshot @x @s3",
    "subvolume snapshot @none @s3",
    "subvolume snapshot @a @none/s3",
    "subvolume delete @a",
    "subvolume delete @x",
    "subvolume delete -C @s1",
    "subvolume delete -c @b/a",
    "subvolume create @n @n/m @n/m/o",
    "subvolume delete -R @n",
    "subvolume set-default @b",
    "subvolume get-default @",
    "subvolume delete @b",
    "subvolume set-default 5 @",
    "subvolume set-default 99999 @",
    "subvolume set-default @x",
    "subvolume delete @b",
    "subvolume sync @ 5",
    "filesystem sync @",
    "filesystem label @ name",
    "filesystem label @",
    "property list @",
    "property list @a",
    "property list @x",
    "property list -t s @a",
    "property list -t i @a",
    "property list -t f @a",
    "property list -t d @a",
    "property get @",
    "property get @a",
    "property get @a ro",
    "property get @a label",
    "property get @a nonsense",
    "property get @none",
    "property get @x",
    "property set @s2 ro false",
    "property get -t s @s2",
    "property set @a ro true",
    "property set @a compression zlib",
    "property get @a",
    "property set @a ro maybe",
    "property set @x ro true",
    "property set @x compression zstd:3",
    "property get @x compression",
    "property set @x compression none",
    "property get @x",
    "property set @x compression bogus",
    "property set @x compression lzo",
    "property set @ label other",
    "property get @ label",
];

pub(crate) fn words(command: &str, path: impl Fn(&str) -> OsString) -> Vec<OsString> {
    let word = |word: &str| match word.strip_prefix('@') {
        Some(name) => path(name),
        None => word.into(),
    };
    command.split(' ').map(word).collect()
}

/// Returns the part of the outcome that must be equal. It contains the exit code, the text on standard
/// output, and whether there is text on standard error.
pub(crate) fn outcome(output: &Output, from: &str, to: &str) -> (bool, String, bool) {
    let text = str::from_utf8(&output.stdout).unwrap();
    let mut lines: Vec<String> = text.lines().map(|line| line.replace(from, to)).collect();
    // Generations differ between the runs. Numbers do too, as they are reused after a volume is reopened.
    for line in &mut lines {
        let is_number = |word: &str| word.trim_end_matches(':').parse::<u64>().is_ok();
        let words = line.split(' ').filter(|word| !is_number(word));
        *line = words.collect::<Vec<_>>().join(" ");
    }
    let said = output.stderr.is_empty();
    (output.status.success(), lines.join("\n"), said)
}

pub(crate) fn by_progs(image: &Path) -> Vec<(bool, String, bool)> {
    on_kernels_mount(image, "btrfs")
}

pub(crate) fn on_kernels_mount(image: &Path, program: &str) -> Vec<(bool, String, bool)> {
    let volume = KernelVolume::of_files(vec![image.to_owned()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let shown = format!("{}/", mount.path().display());
    let run = |command: &&str| {
        let at = |path: &str| match path {
            "" => mount.path().into(),
            path => mount.path().join(path).into(),
        };
        let output = Command::new(program).args(words(command, at)).output();
        outcome(&output.unwrap(), &shown, "@")
    };
    let outcomes = COMMANDS.iter().map(run).collect();
    mount.unmount().unwrap();
    outcomes
}

/// Asserts that the outcome of one of `COMMANDS` is the same as with btrfs-progs.
pub(crate) fn assert_as_progs(
    command: &str,
    found: &(bool, String, bool),
    expected: &(bool, String, bool),
    stderr: &str,
) {
    // btrfs-progs announces a deletion even if it then fails.
    if expected.0 || !command.starts_with("subvolume delete") {
        assert_eq!(found, expected, "{command}: {stderr}");
    }
    assert_eq!(found.0, expected.0, "{command}: {stderr}");
}

pub(crate) fn listed(image: &Path) -> Vec<String> {
    let list = succeed(["subvolume".into(), "list".into(), location(image, "")]);
    let list = String::from_utf8(list).unwrap();
    let mut paths: Vec<String> = list
        .lines()
        .map(|line| line.split_once(" path ").unwrap().1.to_owned())
        .collect();
    paths.sort();
    paths
}

#[test]
fn subvolumes_and_properties_change_as_by_btrfs_progs() {
    if !or_skip("subvolumes_and_properties_change_as_by_btrfs_progs") {
        return;
    }
    let (scratch, theirs) = empty_volume();
    let ours = scratch.path().join("ours.img");
    std::fs::copy(&theirs, &ours).unwrap();
    let expected = by_progs(&theirs);
    let shown = format!("{}:/", ours.display());
    for (command, mut expected) in COMMANDS.iter().zip(expected) {
        // A command on an image ends with a commit.
        expected.1 = expected.1.replace(" (no-commit):", "");
        let output = ubtrfs()
            .args(words(command, |path| location(&ours, path)))
            .output();
        let output = output.unwrap();
        let found = outcome(&output, &shown, "@");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_as_progs(command, &found, &expected, &stderr);
    }
    assert_eq!(listed(&ours), listed(&theirs));
    let kernel = judged(&ours);
    assert!(kernel.get(b"x/y/z").is_some() && kernel.get(b"n").is_none());
    let label =
        |image: &Path| succeed(["filesystem".as_ref(), "label".as_ref(), image.as_os_str()]);
    assert_eq!(label(&ours), label(&theirs));
}

#[test]
fn a_snapshot_shows_its_source_as_it_was() {
    let (_scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    succeed([
        "subvolume".into(),
        "create".into(),
        "-q".into(),
        at("source"),
    ]);
    let data: Vec<u8> = (0..2_000_000u32).map(|at| (at >> 9) as u8).collect();
    write(&image, "source/file", &data);
    for (options, name) in [(&["-q", "-r"][..], "before"), (&["-q"], "writable")] {
        let words = ["subvolume", "snapshot"]
            .iter()
            .chain(options)
            .map(OsString::from);
        succeed(words.chain([at("source"), at(name)]));
    }
    write(&image, "source/file", b"after");
    write(&image, "writable/more", b"more");
    assert_eq!(succeed(["cat".into(), at("before/file")]), data);
    assert_eq!(succeed(["cat".into(), at("writable/file")]), data);
    assert_eq!(succeed(["cat".into(), at("source/file")]), b"after");
    fail(
        ["touch".into(), at("before/x")],
        "the subvolume is read-only",
    );
    fail(
        ["rm".into(), at("before/file")],
        "the subvolume is read-only",
    );
    for name in ["before", "writable", "source"] {
        let shown = succeed(["subvolume".into(), "delete".into(), at(name)]);
        assert!(shown.starts_with(b"Delete subvolume "));
    }
    // Their space is free, and no subvolume is waiting for deletion.
    let listed = succeed(["subvolume".into(), "list".into(), "-d".into(), at("")]);
    assert_eq!(listed, b"");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn deleted_subvolumes_are_freed_when_asked_for_in_a_shell() {
    let (_scratch, image) = empty_volume();
    let mut shell = ubtrfs()
        .arg("shell")
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script = "subvolume create s\n\
                  mkdir s/d\n\
                  touch s/d/f\n\
                  sync\n\
                  subvolume delete --dry-run s\n\
                  subvolume delete s\n\
                  subvolume sync .\n\
                  subvolume sync . 256\n";
    shell
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "Create subvolume '/s'\n\
         Delete subvolume 256 (no-commit): '/s'\n\
         Delete subvolume 256 (no-commit): '/s'\n\
         Waiting for 1 subvolume\n\
         Subvolume id 256 is gone (1/1)\n\
         Waiting for 1 subvolume\n\
         Subvolume id 256 is gone (1/1)\n"
    );
}

#[test]
fn files_move_into_other_subvolumes() {
    let (_scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    succeed(["subvolume".into(), "create".into(), "-q".into(), at("s")]);
    succeed(["mkdir".into(), at("dir")]);
    write(&image, "dir/file", b"contents");
    succeed(["ln".into(), at("dir/file"), at("dir/other")]);
    succeed(["chown".into(), "-R".into(), "7:8".into(), at("dir")]);
    succeed(["mv".into(), at("dir"), at("s")]);
    assert_eq!(succeed(["cat".into(), at("s/dir/other")]), b"contents");
    assert_eq!(succeed(["ls".into(), at("")]), b"s\n");
    let long = succeed(["ls".into(), "-ln".into(), at("s/dir")]);
    assert!(String::from_utf8(long).unwrap().contains(" 2 7 8 "));
    // The subvolume itself is moved like a file.
    succeed(["mkdir".into(), at("d")]);
    succeed(["touch".into(), at("d/file")]);
    succeed(["mv".into(), at("s"), at("d/t")]);
    assert_eq!(listed(&image), ["d/t"]);
    fail(
        [
            "mv".into(),
            "--exchange".into(),
            at("d/t/dir/file"),
            at("d"),
        ],
        "not in the same",
    );
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn a_received_subvolume_is_made_writable_by_force_only() {
    if !or_skip("a_received_subvolume_is_made_writable_by_force_only") {
        return;
    }
    let (_scratch, image) = empty_volume();
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let script = "cd \"$0\" && btrfs -q subvolume create a && btrfs -q subvolume snapshot -r a s && \
                  mkdir r && btrfs -q send s 2>/dev/null | btrfs -q receive r";
    let made = Command::new("sh")
        .args(["-c", script])
        .arg(mount.path())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    mount.unmount().unwrap();
    let received = || {
        let shown = succeed(["subvolume".into(), "show".into(), location(&image, "r/s")]);
        let shown = String::from_utf8(shown).unwrap();
        shown
            .lines()
            .find(|line| line.contains("Received UUID"))
            .unwrap()
            .to_owned()
    };
    let set = |force: bool| {
        let mut words: Vec<OsString> = vec!["property".into(), "set".into()];
        words.extend(force.then(|| "-f".into()));
        words.extend([location(&image, "r/s"), "ro".into(), "false".into()]);
        words
    };
    fail(set(false), "cannot flip ro->rw with received_uuid set");
    assert!(!received().ends_with('-'));
    succeed(set(true));
    assert!(received().ends_with('-'));
    volume.check().unwrap();
}

/// Marks a subvolume as received, in the kernel's mount.
#[allow(unsafe_code)]
fn set_received(subvolume: &Path) {
    use rustix::ioctl::{Updater, ioctl, opcode};
    const SET_RECEIVED_SUBVOL: u32 = opcode::read_write::<[u8; 200]>(0x94, 37);
    let mut argument = [0; 200];
    argument[..16].fill(7);
    let file = std::fs::File::open(subvolume).unwrap();
    // SAFETY: the number belongs to an ioctl with an argument of 200 bytes, which may have any values.
    let done = unsafe { ioctl(file, Updater::<SET_RECEIVED_SUBVOL, _>::new(&mut argument)) };
    done.unwrap();
}

#[test]
fn writable_subvolume_that_was_received_is_shown_with_a_warning() {
    if !or_skip("writable_subvolume_that_was_received_is_shown_with_a_warning") {
        return;
    }
    let (_scratch, image) = empty_volume();
    let create = ["subvolume", "create", "-q"].map(OsString::from);
    succeed(create.into_iter().chain([location(&image, "s")]));
    let volume = KernelVolume::of_files(vec![image.clone()], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    let subvolume = mount.path().join("s");
    set_received(&subvolume);
    let warned = |program: &str, at: &std::ffi::OsStr| {
        let show = Command::new(program)
            .args(["subvolume", "show"])
            .arg(at)
            .output();
        let show = show.unwrap();
        assert!(show.status.success(), "{show:?}");
        String::from_utf8(show.stderr).unwrap()
    };
    let expected = warned("btrfs", subvolume.as_os_str());
    assert!(expected.contains("has received_uuid set"), "{expected}");
    let ours = env!("CARGO_BIN_EXE_ubtrfs");
    assert_eq!(warned(ours, subvolume.as_os_str()), expected);
    mount.unmount().unwrap();
    assert_eq!(warned(ours, &location(&image, "s")), expected);
    let property = ["property", "set"].map(OsString::from);
    let read_only = [location(&image, "s"), "ro".into(), "true".into()];
    ubtrfs()
        .args(property.into_iter().chain(read_only))
        .output()
        .unwrap();
    assert_eq!(warned(ours, &location(&image, "s")), "");
}
