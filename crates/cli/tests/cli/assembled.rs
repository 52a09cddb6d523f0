//! Volumes on md arrays and LVM volumes. Any disk names them, and nothing is written.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use ubtrfs_sim::{LvmGroup, LvmSegment, LvmVolume, MdArray, MdMetadata, Scratch};

use crate::process::{fail, location, succeed, ubtrfs};

const VOLUME_BYTES: u64 = 128 << 20;

/// Creates a volume in an image, and returns its path.
fn volume(folder: &Path, label: &str) -> PathBuf {
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).expect("there is room");
    let lines: String = (0..50_000)
        .map(|line| format!("{line} of {label}\n"))
        .collect();
    fs::write(tree.join("lines.csv"), lines).expect("there is room");
    let image = folder.join(format!("{label}.base"));
    let size = VOLUME_BYTES.to_string();
    let options = ["mkfs", "-L", label, "-b", &size, "--rootdir"].map(OsString::from);
    let paths = [tree.into_os_string(), image.clone().into_os_string()];
    succeed([&options[..], &paths].concat());
    image
}

/// The disks of a box: a volume group on a RAID5 of three disks and a RAID1 of two.
struct Nas {
    _folder: Scratch,
    /// An image of each volume without layers.
    bases: Vec<PathBuf>,
    disks: Vec<PathBuf>,
}

impl Nas {
    fn new(labels: &[&str]) -> Nas {
        let folder = Scratch::new().expect("there is room");
        let bases: Vec<PathBuf> = labels
            .iter()
            .map(|label| volume(folder.path(), label))
            .collect();
        let extents = VOLUME_BYTES / LvmGroup::extent_bytes();
        let first = extents * 2 / 3;
        let volumes = (0..).zip(labels).map(|(number, label)| LvmVolume {
            name: label.chars().filter(char::is_ascii_alphanumeric).collect(),
            segments: vec![
                LvmSegment::linear(0, number * first, first),
                LvmSegment::linear(1, number * (extents - first), extents - first),
            ],
        });
        let group = LvmGroup::new("vg1000", volumes.collect());
        let contents: Vec<Vec<u8>> = bases.iter().map(|base| read(base)).collect();
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let count = labels.len() as u64;
        let bytes =
            |extents: u64| vec![0; ((extents * count + 1) * LvmGroup::extent_bytes()) as usize];
        let mut arrays = vec![bytes(first), bytes(extents - first)];
        group.write(&mut arrays, &contents);
        let large = MdArray::new(5, 2, 3);
        let small = MdArray {
            number: 2,
            ..MdArray::new(1, 0, 2)
        };
        let members = large
            .write(&arrays[0])
            .into_iter()
            .chain(small.write(&arrays[1]));
        let disk = |(number, bytes): (usize, Vec<u8>)| {
            let path = folder.path().join(format!("disk{number}.img"));
            fs::write(&path, bytes).expect("there is room");
            path
        };
        let disks = members.enumerate().map(disk).collect();
        Nas {
            disks,
            _folder: folder,
            bases,
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("readable")
}

fn stderr_of(args: &[OsString]) -> (bool, String) {
    let output = ubtrfs().args(args).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), stderr)
}

fn words(text: &str, last: impl Into<OsString>) -> Vec<OsString> {
    let words = text.split(' ').map(OsString::from);
    words.chain([last.into()]).collect()
}

#[test]
fn any_disk_names_the_volume() {
    let nas = Nas::new(&["data"]);
    let before: Vec<Vec<u8>> = nas.disks.iter().map(|disk| read(disk)).collect();
    for disk in &nas.disks {
        for (verb, path) in [
            ("ls -l", "/"),
            ("cat", "/lines.csv"),
            ("subvolume list", "/"),
        ] {
            let listed = succeed(words(verb, location(disk, path)));
            assert_eq!(listed, succeed(words(verb, location(&nas.bases[0], path))));
        }
        succeed(words("check -q", disk));
    }
    let after: Vec<Vec<u8>> = nas.disks.iter().map(|disk| read(disk)).collect();
    assert!(before == after, "the disks have changed");
}

/// Moves each disk to a folder of its own, where none is found from another.
fn scattered(nas: &Nas) -> Vec<PathBuf> {
    let moved = nas.disks.iter().enumerate().map(|(number, disk)| {
        let folder = disk.with_file_name(format!("folder{number}"));
        fs::create_dir(&folder).expect("there is room");
        let moved = folder.join("disk.img");
        fs::rename(disk, &moved).expect("it exists");
        moved
    });
    moved.collect()
}

/// Returns a command with the first disks before the path on the last one.
fn on_disks(verb: &str, disks: &[PathBuf], path: &str) -> Vec<OsString> {
    let (last, first) = disks.split_last().expect("there are disks");
    let verb = verb.split(' ').map(OsString::from);
    let first = first.iter().map(|disk| disk.clone().into_os_string());
    verb.chain(first).chain([location(last, path)]).collect()
}

#[test]
fn disks_before_a_path_are_of_its_volume() {
    let nas = Nas::new(&["data"]);
    let disks = scattered(&nas);
    fail(on_disks("ls", &disks[..1], "/"), "is missing");
    for (verb, path) in [
        ("ls -l", "/"),
        ("cat", "/lines.csv"),
        ("export --tar", "/"),
        ("getfattr -d", "/lines.csv"),
        ("subvolume list", "/"),
        ("filesystem df", "/"),
        ("inspect-internal inode-resolve 257", "/"),
    ] {
        let base = words(verb, location(&nas.bases[0], path));
        let shown = |args: Vec<OsString>| {
            let text = String::from_utf8_lossy(&succeed(args)).into_owned();
            // Paths begin with the name of the image.
            text.replace(&format!("{}:", disks[4].display()), "")
                .replace(&format!("{}:", nas.bases[0].display()), "")
        };
        assert_eq!(shown(on_disks(verb, &disks, path)), shown(base), "{verb}");
    }
    for (verb, path) in [
        ("stat", "/lines.csv"),
        ("tree", "/"),
        ("filesystem du", "/"),
    ] {
        succeed(on_disks(verb, &disks, path));
    }
    let whole = |verb: &str| -> Vec<OsString> {
        let verb = verb.split(' ').map(OsString::from);
        let disks = disks.iter().map(|disk| disk.clone().into_os_string());
        verb.chain(disks).collect()
    };
    succeed(whole("check -q"));
    let dumped = succeed(whole("inspect-internal dump-tree"));
    let base = succeed(words("inspect-internal dump-tree", &nas.bases[0]));
    assert!(dumped == base, "other trees");

    let copy = disks[0].with_file_name("copy");
    let mut cp = on_disks("cp", &disks, "/lines.csv");
    cp.push(copy.clone().into());
    succeed(cp);
    let base = words("cat", location(&nas.bases[0], "/lines.csv"));
    assert!(read(&copy) == succeed(base));
    // A complete volume is read alone.
    let mut both = words("ls", &nas.bases[0]);
    both.push(location(&nas.bases[0], "/"));
    let listed = String::from_utf8(succeed(both)).expect("text");
    assert_eq!(listed.matches("lines.csv").count(), 2, "{listed}");
}

#[test]
fn missing_disks_are_named_and_rebuilt() {
    let nas = Nas::new(&["data"]);
    fs::remove_file(&nas.disks[1]).expect("it exists");
    let read = words("cat", location(&nas.disks[0], "/lines.csv"));
    let output = ubtrfs().args(&read).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("md RAID5 'nas:5': member 1 is missing"),
        "{stderr}"
    );
    let base = words("cat", location(&nas.bases[0], "/lines.csv"));
    assert!(output.stdout == succeed(base));

    fs::remove_file(&nas.disks[2]).expect("it exists");
    let needed = "1 of 3 members are there, at least 2 are needed";
    fail(&read, needed);
}

#[test]
fn assembled_volumes_are_not_written() {
    let nas = Nas::new(&["data"]);
    let message = "read-only: assembled from LVM volumes";
    fail(words("mkdir", location(&nas.disks[0], "/new")), message);
    fail(
        words("subvolume create", location(&nas.disks[4], "/new")),
        message,
    );
}

#[test]
fn one_of_several_volumes_is_chosen() {
    let nas = Nas::new(&["data", "media"]);
    let disk = location(&nas.disks[0], "/lines.csv");
    fail(
        words("cat", disk.clone()),
        "choose one with the option 'volume'",
    );
    for (base, names) in [(0, ["data", "vg1000/data"]), (1, ["media", "vg1000/media"])] {
        let wanted = succeed(words("cat", location(&nas.bases[base], "/lines.csv")));
        for name in names {
            let chosen = format!("cat --volume {name}");
            assert!(succeed(words(&chosen, disk.clone())) == wanted);
        }
    }
    fail(
        words("cat --volume other", disk),
        "the disks hold no volume 'other'",
    );
}

#[test]
fn layers_are_listed_as_a_tree_and_as_json() {
    let nas = Nas::new(&["data"]);
    fs::remove_file(&nas.disks[3]).expect("it exists");
    let listed = succeed(words("inspect-internal assemble", &nas.disks[0]));
    let listed = String::from_utf8(listed).expect("text");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[0].starts_with("vg1000/data LVM volume, 128.00MiB: btrfs "),
        "{listed}"
    );
    assert!(lines[1].starts_with("├─nas:5 md RAID5, "), "{listed}");
    assert!(
        lines[1].ends_with("3 of 3 members, chunks of 64.00KiB"),
        "{listed}"
    );
    assert!(lines[5].starts_with("└─nas:1 md RAID1, "), "{listed}");
    assert_eq!(lines[6], "  ├─missing: member 0");
    assert_eq!(lines.len(), 8, "{listed}");

    let json = succeed(words(
        "--format json inspect-internal assemble",
        &nas.disks[0],
    ));
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let layers = json["assemble"].as_array().expect("a list");
    let volume = layers
        .iter()
        .find(|layer| layer["kind"] == "LVM")
        .expect("a volume");
    assert_eq!(volume["contents"], "btrfs");
    assert_eq!(volume["label"], "data");
    let mirror = layers
        .iter()
        .find(|layer| layer["level"] == 1)
        .expect("an array");
    assert_eq!(mirror["parts"][0]["state"], "missing");
    assert_eq!(mirror["parts"][0]["description"], "member 0");
}

#[test]
fn copy_of_a_disk_nearby_is_not_guessed() {
    let nas = Nas::new(&["data"]);
    let copy = nas.disks[1].with_file_name("copy-of-disk1.img");
    fs::copy(&nas.disks[1], &copy).expect("there is room");
    let list = words("ls", location(&nas.disks[0], "/"));
    fail(
        &list,
        "may both be member 1 of the array 'nas:5': name the one that is meant",
    );
    let mut named = list;
    named.extend(["--device".into(), copy.into()]);
    let (is_success, stderr) = stderr_of(&named);
    assert!(is_success, "{stderr}");
}

#[test]
fn formats_that_are_not_read_are_named_with_a_command() {
    let folder = Scratch::new().expect("there is room");
    let mut content = vec![0; 1 << 20];
    content[..6].copy_from_slice(b"LUKS\xba\xbe");
    let array = MdArray::new(1, 0, 1);
    let disk = folder.path().join("disk.img");
    fs::write(&disk, array.write(&content).swap_remove(0)).expect("there is room");
    let hint = "md RAID1 'nas:1': LUKS encryption (crypto_LUKS) is not read here; on Linux: cryptsetup open";
    fail(words("ls", location(&disk, "/")), hint);
}

#[test]
fn partitions_of_a_disk_are_found() {
    let folder = Scratch::new().expect("there is room");
    let base = volume(folder.path(), "data");
    let mut disk = vec![0; (VOLUME_BYTES + (4 << 20)) as usize];
    // One Linux partition from 2 MiB on.
    let sectors = (VOLUME_BYTES / 512) as u32;
    let entry = [
        &[0, 0, 0, 0, 0x83, 0, 0, 0][..],
        &4096_u32.to_le_bytes(),
        &sectors.to_le_bytes(),
    ];
    disk[446..462].copy_from_slice(&entry.concat());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[2 << 20..][..VOLUME_BYTES as usize].copy_from_slice(&read(&base));
    let path = folder.path().join("disk.img");
    fs::write(&path, disk).expect("there is room");
    let listed = succeed(words("ls -l", location(&path, "/")));
    assert_eq!(listed, succeed(words("ls -l", location(&base, "/"))));
    fail(
        words("mkdir", location(&path, "/new")),
        "read-only: on a partition",
    );
    let tree = succeed(words("inspect-internal assemble", &path));
    let tree = String::from_utf8(tree).expect("text");
    assert!(
        tree.contains("disk.img, partition 1, 128.00MiB: btrfs "),
        "{tree}"
    );
}

#[test]
fn volumes_on_layers_are_shown_with_their_maker() {
    let nas = Nas::new(&["2017.04.11-10:20:30 v25556", "media"]);
    let show = |args: Vec<OsString>| String::from_utf8(succeed(args)).expect("text");
    let shown = show(words("filesystem show", &nas.disks[1]));
    assert!(
        shown.contains("\tmade by Synology DSM build 25556\n"),
        "{shown}"
    );
    assert!(shown.contains(" path vg1000/media\n"), "{shown}");
    let json = succeed(words("--format json filesystem show", &nas.disks[1]));
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let volumes = json["filesystem-show"].as_array().expect("a list");
    assert_eq!(volumes.len(), 2, "{json}");

    let dump = |args: Vec<OsString>| {
        let text = show(args);
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("superblock: "));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let bases = nas.bases.iter().map(|base| base.clone().into_os_string());
    let bases = ["inspect-internal", "dump-super", "-f"]
        .map(OsString::from)
        .into_iter()
        .chain(bases);
    let dumped = words("inspect-internal dump-super -f", &nas.disks[0]);
    assert_eq!(dump(dumped.clone()), dump(bases.collect()));
    // Another disk of the same volumes adds nothing.
    let mut both = dumped.clone();
    both.push(nas.disks[4].clone().into());
    assert_eq!(show(both), show(dumped));
    let forced = words("inspect-internal dump-super -F", &nas.disks[0]);
    assert!(
        !show(forced).contains("vg1000"),
        "the bytes of the disk itself"
    );
}

#[test]
fn mirror_with_its_superblock_at_the_end_is_read() {
    let folder = Scratch::new().expect("there is room");
    let base = volume(folder.path(), "data");
    for metadata in [MdMetadata::End, MdMetadata::AfterStart] {
        let array = MdArray {
            metadata,
            ..MdArray::new(1, 0, 2)
        };
        let disks: Vec<PathBuf> = array
            .write(&read(&base))
            .into_iter()
            .enumerate()
            .map(|(number, bytes)| {
                let path = folder.path().join(format!("disk{number}.img"));
                fs::write(&path, bytes).expect("there is room");
                path
            })
            .collect();
        let wanted = succeed(words("ls -l", location(&base, "/")));
        assert_eq!(succeed(words("ls -l", location(&disks[1], "/"))), wanted);
        assert_eq!(succeed(on_disks("ls -l", &disks, "/")), wanted);
        let shown = String::from_utf8(succeed(words("filesystem show", &disks[0])));
        let shown = shown.expect("text");
        assert!(shown.contains(" path nas:1\n"), "{shown}");
    }
}
