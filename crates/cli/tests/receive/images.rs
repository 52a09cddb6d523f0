//! Streams of the kernel, received into images. The trees equal the sender's, and both checkers accept the
//! volume. The properties of subvolumes are the same as after `btrfs receive`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, progs_verdict};

use crate::source::{
    OURS, SNAPSHOTS, Series, SourceVolume, empty_image, ready, receive, run, shown,
};

fn location(image: &Path, path: &str) -> std::ffi::OsString {
    let mut location = image.as_os_str().to_owned();
    location.push(":/");
    location.push(path);
    location
}

/// Asserts that both checkers find no error.
fn assert_sound(what: &str, image: &Path) {
    let verdict = progs_verdict(&[image.to_owned()], true);
    assert_eq!(verdict, Ok(()), "{what}");
    let output = run(OURS, &["check".as_ref(), image.as_os_str()]);
    assert!(output.status.success(), "{what}: {output:?}");
}

fn count_of(text: &[u8], part: &str) -> usize {
    let text = String::from_utf8_lossy(text);
    text.lines().filter(|line| line.contains(part)).count()
}

/// Returns how many extents are compressed, by each algorithm.
fn compressed(image: &Path) -> [usize; 3] {
    let args: [&OsStr; 3] = [
        "inspect-internal".as_ref(),
        "dump-tree".as_ref(),
        image.as_os_str(),
    ];
    let dumped = run(OURS, &args).stdout;
    ["compression 1 ", "compression 2 ", "compression 3 "].map(|part| count_of(&dumped, part))
}

/// Returns how many bytes of each subvolume are shared, within it or with others.
fn shared_bytes(dir: &Path) -> Vec<u64> {
    let shared = SNAPSHOTS.iter().map(|name| {
        let mut command = std::process::Command::new("btrfs");
        command.args(["filesystem", "du", "-s", "--raw"]);
        let output = command.arg(dir.join(name)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let fields = text.lines().last().unwrap().split_whitespace();
        fields.map(str::to_owned).nth(2).unwrap().parse().unwrap()
    });
    shared.collect()
}

/// Creates a volume with the reference program from a series, on its own mount.
fn reference(series: &Series) -> (KernelVolume, KernelMount) {
    let volume = KernelVolume::make(&MkfsSpec::new().device_bytes(1 << 30)).unwrap();
    let mount = volume.mount("").unwrap();
    receive("btrfs", series, mount.path().as_os_str());
    (volume, mount)
}

#[test]
fn streams_of_the_kernel_are_received_into_images() {
    let test = "receive into images";
    if !ready(test) {
        return;
    }
    let source = SourceVolume::make(test);
    let scratch = Scratch::new().unwrap();
    for options in ["--proto 1", "--proto 2", "--proto 2 --compressed-data"] {
        let series = source.send(options);
        let image = scratch.path().join("v.img");
        empty_image(&image);
        receive(OURS, &series, &location(&image, ""));
        assert_sound(options, &image);
        let compressed = compressed(&image);
        if options.contains("compressed") {
            assert!(
                compressed.iter().all(|&extents| extents > 3),
                "{compressed:?}"
            );
        }
        let (volume, kernels) = reference(&series);
        let wanted = shown(kernels.path());
        let mount = KernelMount::new(std::slice::from_ref(&image), "ro").unwrap();
        source.assert_received(options, mount.path());
        assert_eq!(shown(mount.path()), wanted, "{options}");
        let shared = shared_bytes(mount.path());
        // The writer chooses whether small files are stored inline or in an extent.
        for (found, wanted) in shared.into_iter().zip(shared_bytes(kernels.path())) {
            assert!(
                found.abs_diff(wanted) < wanted / 20,
                "{options}: {found}, {wanted}"
            );
        }
        kernels.unmount().unwrap();
        drop(volume);
        mount.unmount().unwrap();
        std::fs::remove_file(&image).unwrap();
        for stream in series.streams {
            std::fs::remove_file(stream).unwrap();
        }
    }
}

/// The destination is a directory of a subvolume. Several streams follow each other in the file, and extents
/// are decompressed.
#[test]
fn several_streams_are_received_from_one_file() {
    let test = "streams behind each other";
    if !ready(test) {
        return;
    }
    let source = SourceVolume::make(test);
    let series = source.send("--proto 2 --compressed-data");
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    empty_image(&image);
    let mut all = Vec::new();
    for stream in &series.streams {
        all.extend(std::fs::read(stream).unwrap());
    }
    let joined = scratch.path().join("all");
    std::fs::write(&joined, all).unwrap();
    for args in [["subvolume", "create"], ["mkdir", "-p"]] {
        let path = if args[0] == "mkdir" { "sub/dir" } else { "sub" };
        let place = location(&image, path);
        let output = run(OURS, &[args[0].as_ref(), args[1].as_ref(), &place]);
        assert!(output.status.success(), "{output:?}");
    }
    let place = location(&image, "sub/dir");
    let first: [&OsStr; 5] = [
        "receive".as_ref(),
        "--force-decompress".as_ref(),
        "-ef".as_ref(),
        joined.as_os_str(),
        &place,
    ];
    let output = run(OURS, &first);
    assert_eq!(output.stderr, b"At subvol other\n");
    let rest: Vec<PathBuf> = series.streams[1..].to_vec();
    let mut behind = Vec::new();
    for stream in &rest {
        behind.extend(std::fs::read(stream).unwrap());
    }
    std::fs::write(&joined, behind).unwrap();
    let output = run(OURS, &[&first[..2], &["-f".as_ref()], &first[3..]].concat());
    assert_eq!(output.stderr, b"At subvol before\n", "{output:?}");
    let wanted = b"At snapshot between\nAt snapshot after\n";
    assert_eq!(output.stdout, wanted, "{output:?}");
    assert_sound(test, &image);
    let mount = KernelMount::new(std::slice::from_ref(&image), "ro").unwrap();
    source.assert_received(test, &mount.path().join("sub/dir"));
    mount.unmount().unwrap();
}
